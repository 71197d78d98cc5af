"""Files of scores: .npz with padded arrays, or JSON Lines with one sequence per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores, Rows, token_rows
from trmon.terminal.array_files import read_arrays
from trmon.terminal.preflight.scored_tokens import ScoredTokens

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
        """Whether the log-probs of the rollout are there beside those of the trainer."""
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
        return _read_lines(path)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error


def _read_lines(path: Path) -> Mapping[str, Any]:
    with path.open(encoding="utf-8-sig") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected one JSON object per sequence")
    names = rows[0].keys()
    for number, row in enumerate(rows, start=1):
        if row.keys() != names:
            raise ValueError(f"sequence {number} has other fields than the first one")
    return {name: [row[name] for row in rows] for name in names}


def _without_attention_padding(source: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields without the positions that the attention mask leaves out."""
    if _ATTENTION not in fields:
        return fields
    attended: Rows = token_rows(source, "mask", fields[_ATTENTION])
    try:
        return {
            name: [np.asarray(row)[at] for row, at in zip(rows, attended, strict=True)] if _is_per_token(name) else rows
            for name, rows in fields.items()
            if name != _ATTENTION
        }
    except (IndexError, ValueError) as error:
        raise InvalidInput(source, f"{_ATTENTION} does not fit the other fields: {error}") from error


def _is_per_token(name: str) -> bool:
    return any(name.removeprefix(prefix) in FIELDS for prefix in (*ROLLOUT_PREFIXES, *TRAINER_PREFIXES))
