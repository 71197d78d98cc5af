"""Pairs of log-probs that two engines give the same tokens, in the order of the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from trmon.domain.errors import InvalidInput
from trmon.domain.signals.run_features import columns_signals
from trmon_client.core import divergence, statistics
from trmon_client.core.arrays import is_tensor, to_computable
from trmon_client.core.inputs.checked_inputs import MAX_LOGPROB, MIN_LOGPROB

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
        rows = {name: token_rows(source, name, value) for name, value in given.items() if value is not None}
        lengths = [len(row) for row in rows["logprobs"]]
        for name, arrays in rows.items():
            if [len(row) for row in arrays] != lengths:
                raise InvalidInput(source, f"{name} has other lengths than logprobs; expected one for each token")
        return cls(**rows)


def token_rows(source: str, name: str, value: Any) -> Rows:
    """Return what an engine says of each token as rows. Errors: InvalidInput naming the source and the field."""
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


@dataclass(frozen=True, slots=True, eq=False)
class TokenPairs:
    """The paired log-probs of B sequences, and the position of each token in the row of its engine."""

    rollout: Rows
    trainer: Rows
    rollout_positions: Rows
    trainer_positions: Rows

    @classmethod
    def at(cls, rollout: EngineScores, trainer: EngineScores, positions: list[tuple[Any, Any]]) -> TokenPairs:
        """Return the pairs at positions of both engines, one tuple for each sequence."""
        return cls(
            rollout=tuple(row[at] for row, (at, _) in zip(rollout.logprobs, positions, strict=True)),
            trainer=tuple(row[at] for row, (_, at) in zip(trainer.logprobs, positions, strict=True)),
            rollout_positions=tuple(at for at, _ in positions),
            trainer_positions=tuple(at for _, at in positions),
        )

    @property
    def n_tokens(self) -> int:
        """The number of pairs."""
        return sum(map(len, self.trainer))

    @property
    def _fields(self) -> tuple[Rows, Rows, Rows, Rows]:
        return self.rollout, self.trainer, self.rollout_positions, self.trainer_positions

    def shifted(self, by: int) -> TokenPairs:
        """Return the pairs of the rollout's log-prob at t + by and the trainer's at t; by is 1 or -1."""
        later, earlier = slice(1, None), slice(None, -1)
        kept = [later, earlier] if by == 1 else [earlier, later]
        return TokenPairs(*(tuple(row[at] for row in rows) for rows, at in zip(self._fields, kept * 2, strict=True)))

    def where(self, keep: Callable[[Any, Any], Any]) -> TokenPairs:
        """Return the pairs that a predicate of both rows [T_i] keeps."""
        kept = [keep(*pair) for pair in zip(self.rollout, self.trainer, strict=True)]
        return TokenPairs(*(tuple(row[at] for row, at in zip(rows, kept, strict=True)) for rows in self._fields))

    def swapped(self) -> TokenPairs:
        """Return the pairs with the roles of the engines exchanged."""
        return TokenPairs(self.trainer, self.rollout, self.trainer_positions, self.rollout_positions)

    def part(self, first: int, *, every: int) -> TokenPairs:
        """Return every n-th sequence from the first one given on."""
        return TokenPairs(*(rows[first::every] for rows in self._fields))

    def signals(self) -> dict[str, float]:
        """Return the signals of the pair mismatch by their full names, and the numbers of tokens and sequences."""
        columns = statistics.columns(rollout_logprobs=list(self.rollout), old_logprobs=list(self.trainer))
        counts = {"n_tokens": float(columns["n_tokens"].sum()), "n_sequences": float(len(self.trainer))}
        return columns_signals(columns) | counts

    def flat(self) -> tuple[Any, Any]:
        """Return the log-probs of all sequences, [N] each."""
        return np.concatenate(self.rollout), np.concatenate(self.trainer)


def is_impossible(logp: Any) -> Any:
    """Return where a value is missing or no log-prob: NaN, or above 0 by more than rounding."""
    return np.isnan(logp) | (logp > MAX_LOGPROB)


def has_no_probability(logp: Any) -> Any:
    """Return where an engine gives a token no probability: -inf, or the sentinel that stands for it."""
    return logp <= MIN_LOGPROB


TvIs = Literal["exact", "lower_bound"]


def token_variation(pairs: TokenPairs, *, rollout: EngineScores, trainer: EngineScores) -> tuple[Any, TvIs]:
    """Return the total variation of each pair, [N], and whether it is exact.

    Without the logits of both engines it is |p - q| of the token, which the variation never falls below.
    Source: formulas, sections 4 and 9 (mismatch budget).
    """
    if rollout.logits is None or trainer.logits is None or not pairs.n_tokens:
        of_rollout, of_trainer = map(np.exp, pairs.flat())
        return np.abs(of_rollout - of_trainer), "lower_bound"
    logits = _at(rollout.logits, pairs.rollout_positions), _at(trainer.logits, pairs.trainer_positions)
    # Each token as a sequence of its own, so that a column holds the value of a token.
    columns = divergence.exact(
        rollout_logits=logits[0], old_logits=logits[1], mask=np.ones((pairs.n_tokens, 1), bool), tv=True
    )
    return columns["sum_tv"], "exact"


def trainer_mass_outside(pairs: TokenPairs, *, rollout: EngineScores, trainer: EngineScores) -> float | None:
    """Return the mean probability that the trainer gives to tokens which the rollout cannot sample; None unknown."""
    if rollout.logits is None or trainer.logits is None or not pairs.n_tokens:
        return None
    of_rollout = _at(rollout.logits, pairs.rollout_positions)[:, 0]
    of_trainer = _at(trainer.logits, pairs.trainer_positions)[:, 0]
    p = np.exp(of_trainer - of_trainer.max(axis=1, keepdims=True))
    return float(np.mean(np.where(np.isneginf(of_rollout), p, 0.0).sum(axis=1) / p.sum(axis=1)))


def _at(logits: Rows, positions: Rows) -> Any:
    """Return the logits at positions, [N, 1, V]."""
    return np.concatenate([row[at] for row, at in zip(logits, positions, strict=True)])[:, None]
