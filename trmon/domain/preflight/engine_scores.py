"""What one engine says of the tokens of some sequences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from trmon.domain.model.errors import InvalidInput
from trmon_client.core.arrays.backend import is_tensor
from trmon_client.core.arrays.conversion import to_computable

Rows: TypeAlias = tuple[Any, ...]
"""One array for each sequence."""

_DTYPES: dict[str, type] = {"logprobs": np.float64, "mask": np.bool_, "token_ids": np.int64, "logits": np.float64}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EngineScores:
    """The log-probs that one engine gives the tokens of B sequences, with one array [T_i] for each sequence.

    `logprobs`: nats, NaN where the engine gives none; `mask`: which tokens count, None if it is not known;
    `logits`: [T_i, V], temperature applied.
    """

    logprobs: Rows
    mask: Rows | None = None
    token_ids: Rows | None = None
    logits: Rows | None = None

    @classmethod
    def of(cls, source: str, *, logprobs: Any, mask: Any = None, token_ids: Any = None, logits: Any = None) -> Self:
        """Return the scores of an engine.

        Args: source: what errors name; the others: [B, T] arrays or tensors, or lists of B rows, with None for a
            missing log-prob; logits [B, T, V].
        Errors: InvalidInput naming the source and the field.
        """
        given = {"logprobs": logprobs, "mask": mask, "token_ids": token_ids, "logits": logits}
        rows = {name: _rows(source, name, value) for name, value in given.items() if value is not None}
        lengths = [len(row) for row in rows["logprobs"]]
        for name, arrays in rows.items():
            if [len(row) for row in arrays] != lengths:
                raise InvalidInput(source, f"{name} has other lengths than logprobs; expected one for each token")
        return cls(**rows)


def token_rows(source: str, name: str, value: Any) -> Rows:
    """Return whole sequences of token ids or masks as rows. Errors: InvalidInput naming the source and the field."""
    return _rows(source, name, value)


def _rows(source: str, name: str, value: Any) -> Rows:
    rows: Iterable[Any] = to_computable(value, None) if is_tensor(value) else value
    n_dimensions = 2 if name == "logits" else 1
    try:
        found = tuple(_row(row, _DTYPES[name]) for row in rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(source, f"{name} is not a list of rows of numbers: {error}") from error
    if any(row.ndim != n_dimensions for row in found):
        shape = "[tokens, vocabulary]" if name == "logits" else "[tokens]"
        raise InvalidInput(source, f"{name} has a sequence that is not {shape}")
    if not found:
        raise InvalidInput(source, f"{name} has no sequences")
    return found


def _row(row: Any, dtype: type) -> Any:
    array = to_computable(row, None) if is_tensor(row) else np.asarray(row)
    if dtype is np.int64 and array.dtype.kind not in "iub" and len(array):
        raise ValueError("expected whole numbers")
    return array.astype(dtype)
