"""The two sources of a preflight: files, functions, and for the rollout an OpenAI-compatible endpoint."""

from __future__ import annotations

from pathlib import Path

from trmon.domain.model.errors import InvalidInput
from trmon.domain.preflight.engine_scores import EngineScores
from trmon.terminal.preflight.score_files import SUFFIXES, ScoreFile
from trmon.terminal.preflight.score_functions import NAME, score_with_function
from trmon.terminal.preflight.scored_tokens import ScoredTokens


def read_scores(rollout: str, trainer: str | None, *, tokens: Path | None) -> tuple[EngineScores, EngineScores]:
    """Return the scores of the rollout and of the trainer.

    Args: rollout, trainer: a file, or module:function; without a trainer, a file with the log-probs of both.
        tokens: a file with the sequences to score; by default those of the other source.
    Errors: InvalidInput naming the source.
    """
    if trainer is None:
        return _both(rollout)
    given = None if tokens is None else _tokens_of(tokens)
    of_trainer = ScoreFile(Path(trainer)) if _is_file(trainer) else None
    if _is_file(rollout):
        first = ScoreFile(Path(rollout)).rollout()
    else:
        asked = given if given is not None or of_trainer is None else of_trainer.tokens()
        first = score_with_function(_function(rollout), asked)
    if of_trainer is not None:
        return first, of_trainer.trainer()
    return first, score_with_function(_function(trainer), ScoredTokens.of(first) or given)


def _both(source: str) -> tuple[EngineScores, EngineScores]:
    if not _is_file(source):
        raise InvalidInput("TRAINER", f"is needed beside {source}, which has one engine")
    file = ScoreFile(Path(source))
    if not file.has_both_engines:
        raise InvalidInput(source, "needs rollout_logprobs and old_logprobs (or logprobs), or name a second source")
    return file.rollout(), file.trainer()


def _tokens_of(path: Path) -> ScoredTokens:
    found = ScoreFile(path).tokens()
    if found is None:
        raise InvalidInput("--tokens", f"{path} has no token_ids")
    return found


def _is_file(source: str) -> bool:
    return Path(source).suffix in SUFFIXES


def _function(source: str) -> str:
    if not NAME.fullmatch(source):
        raise InvalidInput(source, f"must be a file ({', '.join(SUFFIXES)}) or module:function")
    return source
