"""Files of scores: .npz with padded arrays, or JSON Lines with one sequence per line."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores, Rows, token_rows
from trmon.terminal.array_files import read_arrays
from trmon.terminal.completions_endpoint import CompletionsEndpoint, ScoredTokens

SUFFIXES = (".npz", ".jsonl")
FIELDS = ("logprobs", "mask", "token_ids", "logits")
ROLLOUT_PREFIXES = ("rollout_", "")
TRAINER_PREFIXES = ("old_", "")
_ATTENTION = "attention_mask"


class ScoreFile:
    """The fields of a file by name: those of one engine, or those of both under the names that `log_batch` has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields = _without_attention_padding(str(path), _read(path))

    @property
    def has_both_engines(self) -> bool:
        """Whether the log-probs of the rollout are there besides those of the trainer."""
        trainer = [f"{prefix}logprobs" for prefix in TRAINER_PREFIXES]
        return "rollout_logprobs" in self._fields and any(name in self._fields for name in trainer)

    def rollout(self) -> EngineScores:
        """Return the scores of the rollout engine. Errors: InvalidInput."""
        return self._scores(ROLLOUT_PREFIXES)

    def trainer(self) -> EngineScores:
        """Return the scores of the trainer. Errors: InvalidInput."""
        return self._scores(TRAINER_PREFIXES)

    def tokens(self) -> ScoredTokens | None:
        """Return the sequences to score; None if the file has no token ids. Errors: InvalidInput."""
        if "token_ids" not in self._fields:
            return None
        fields = {
            name: token_rows(str(self.path), name, self._fields[name])
            for name in ("token_ids", "mask")
            if name in self._fields
        }
        return ScoredTokens(**fields)

    def _scores(self, prefixes: tuple[str, ...]) -> EngineScores:
        found = {name: self._field(name, prefixes) for name in FIELDS}
        if found["logprobs"] is None:
            names = " or ".join(f"{prefix}logprobs" for prefix in prefixes)
            raise InvalidInput(str(self.path), f"has no {names}; it has {', '.join(sorted(self._fields)) or 'nothing'}")
        return EngineScores.of(str(self.path), **found)

    def _field(self, name: str, prefixes: tuple[str, ...]) -> Any:
        return next((self._fields[prefix + name] for prefix in prefixes if prefix + name in self._fields), None)


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".npz":
        return read_arrays(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        if not rows or not all(isinstance(row, dict) for row in rows):
            raise ValueError("expected one JSON object per sequence")
        names = rows[0].keys()
        for number, row in enumerate(rows, start=1):
            if row.keys() != names:
                raise ValueError(f"sequence {number} has other fields than the first one")
        return {name: [row[name] for row in rows] for name in names}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error


def _without_attention_padding(source: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields without the positions that the attention mask leaves out."""
    if _ATTENTION not in fields:
        return fields
    attended: Rows = token_rows(source, "mask", fields[_ATTENTION])
    try:
        return {
            name: [np.asarray(row)[at] for row, at in zip(rows, attended, strict=True)]
            if any(name.removeprefix(prefix) in FIELDS for prefix in (*ROLLOUT_PREFIXES, *TRAINER_PREFIXES))
            else rows
            for name, rows in fields.items()
            if name != _ATTENTION
        }
    except (IndexError, ValueError) as error:
        raise InvalidInput(source, f"{_ATTENTION} does not fit the other fields: {error}") from error


NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def score_with_function(name: str, tokens: ScoredTokens | None) -> EngineScores:
    """Return what a function says of the tokens.

    It is called as function(token_ids, mask) with one array for each sequence, mask None if all tokens count; without
    tokens it is called without arguments and brings its own. It returns log-probs, [B, T] or B rows as long as the
    token ids, or a mapping with logprobs and any of mask, token_ids and logits.
    Errors: InvalidInput if the function cannot be imported, fails, or returns something else.
    """
    function = _imported(name)
    try:
        found = function() if tokens is None else function(tokens.token_ids, tokens.mask)
    except Exception as error:
        raise InvalidInput(name, f"failed with {type(error).__name__}: {error}") from error
    fields: dict[str, Any] = dict(found) if isinstance(found, Mapping) else {"logprobs": found}
    if fields.get("logprobs") is None or (unknown := fields.keys() - set(FIELDS)):
        extra = f"; it also returned {', '.join(sorted(unknown))}" if fields.get("logprobs") is not None else ""
        raise InvalidInput(name, f"must return log-probs, or a mapping of {', '.join(FIELDS)}{extra}")
    if tokens is not None and fields.get("token_ids") is None:
        known = {field: value for field, value in fields.items() if value is not None}
        fields = {"token_ids": tokens.token_ids, "mask": tokens.mask, **known}
    return EngineScores.of(name, **fields)


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    # As with `python -m`, modules of the working directory can be named.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidInput(name, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidInput(name, "is not a function")
    return found


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
        if isinstance(rollout, CompletionsEndpoint) or not _is_file(rollout):
            raise InvalidInput("TRAINER", "is needed: only a file has the log-probs of both engines")
        file = ScoreFile(Path(rollout))
        if not file.has_both_engines:
            raise InvalidInput(
                rollout, "needs rollout_logprobs and old_logprobs (or logprobs), or name a second source"
            )
        return file.rollout(), file.trainer()
    given = None if tokens is None else ScoreFile(tokens).tokens()
    if tokens is not None and given is None:
        raise InvalidInput("--tokens", f"{tokens} has no token_ids")
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


def _is_file(source: str) -> bool:
    return Path(source).suffix in SUFFIXES


def _function(source: str) -> str:
    if not NAME.fullmatch(source):
        raise InvalidInput(source, f"must be a file ({', '.join(SUFFIXES)}) or module:function")
    return source
