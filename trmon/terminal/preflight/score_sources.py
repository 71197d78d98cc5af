"""The two sources of a preflight: files, functions, and for the rollout an OpenAI-compatible endpoint."""

from __future__ import annotations

from pathlib import Path

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores
from trmon.terminal.preflight.completions_endpoint import CompletionsEndpoint
from trmon.terminal.preflight.score_files import SUFFIXES, ScoreFile
from trmon.terminal.preflight.score_functions import NAME, score_with_function
from trmon.terminal.preflight.scored_tokens import ScoredTokens


def is_endpoint(source: str) -> bool:
    """Return whether a source is the URL of an endpoint."""
    return source.startswith(("http://", "https://"))


def read_scores(
    rollout: str | CompletionsEndpoint, trainer: str | None, *, tokens: Path | None
) -> tuple[EngineScores, EngineScores]:
    """Return the scores of the rollout and of the trainer.

    Args: rollout, trainer: a file, or module:function; without a trainer, a file with the log-probs of both.
        tokens: a file with the sequences to score; by default those of the other source.
    Errors: InvalidInput naming the source.
    """
    if trainer is None:
        return _both(rollout)
    given = None if tokens is None else _tokens_of(tokens)
    of_trainer = ScoreFile(Path(trainer)) if _is_file(trainer) else None
    asked = given if given is not None or of_trainer is None else of_trainer.tokens()
    first = _rollout_scores(rollout, asked)
    if of_trainer is not None:
        return first, of_trainer.trainer()
    return first, score_with_function(_function(trainer), ScoredTokens.of(first) or given)


def _rollout_scores(rollout: str | CompletionsEndpoint, tokens: ScoredTokens | None) -> EngineScores:
    if isinstance(rollout, CompletionsEndpoint):
        if tokens is None:
            raise InvalidInput(rollout.url, "needs token_ids to score: in the trainer's file, or by --tokens")
        return rollout.score(tokens)
    return ScoreFile(Path(rollout)).rollout() if _is_file(rollout) else score_with_function(_function(rollout), tokens)


def _both(source: str | CompletionsEndpoint) -> tuple[EngineScores, EngineScores]:
    if isinstance(source, CompletionsEndpoint) or not _is_file(source):
        raise InvalidInput("TRAINER", "is needed: only a file has the log-probs of both engines")
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
