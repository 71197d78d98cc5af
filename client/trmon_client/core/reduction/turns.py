"""Reduces tokens to the columns of their turns, on the host and on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.column_schema import TURN_COLUMNS
from trmon_client.core.columns import TurnColumns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.labels import TurnInputs
from trmon_client.core.reduction.sequences import block_tokens
from trmon_client.core.reduction.token_terms import TokenBlock, TokenRatios


@dataclass(frozen=True, slots=True)
class _HostGroups:
    """The tokens of each of n groups on the host: `tokens` are positions among all, those of a group adjacent.

    Of terms [k, B, T] float64, sums and maxima are [k, n]: 0 and -inf for an empty group; counts are int64 [n].
    """

    tokens: Array
    groups: Array
    """The groups that have tokens, ascending."""
    starts: Array
    """Where their tokens start."""
    n_groups: int

    @classmethod
    def of(cls, rows: Array, *, n_groups: int) -> _HostGroups:
        """Return the groups; tokens are sorted only where groups do not ascend, which turns do.

        Args: rows: int64 [B, T], each token's group, `n_groups` where it is of none.
        """
        flat = rows.reshape(-1)
        tokens = np.flatnonzero(flat < n_groups)
        group_of = flat[tokens]
        if (np.diff(group_of) < 0).any():
            order = np.argsort(group_of, kind="stable")
            tokens, group_of = tokens[order], group_of[order]
        starts = np.flatnonzero(np.diff(group_of, prepend=-1))
        return cls(tokens, group_of[starts], starts, n_groups)

    def counts(self) -> Array:
        found = np.zeros(self.n_groups, np.int64)
        found[self.groups] = np.diff(self.starts, append=len(self.tokens))
        return found

    def sums(self, terms: Array) -> Array:
        return self._reduced(np.add, terms, identity=0.0)

    def maxima(self, terms: Array) -> Array:
        return self._reduced(np.maximum, terms, identity=-np.inf)

    def _reduced(self, function: np.ufunc, terms: Array, *, identity: float) -> Array:
        found = np.full((len(terms), self.n_groups), identity)
        if len(self.tokens):
            picked = terms.reshape(len(terms), -1)[:, self.tokens]
            found[:, self.groups] = function.reduceat(picked, self.starts, axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class _DeviceGroups:
    """The same on a device: `rows` int64 [1, B T] is the group of each token, `n_groups` where it is of none.

    Nothing is read from the device: tokens of no group are added to one more group, which is dropped.
    """

    rows: Array
    n_groups: int

    def counts(self) -> Array:
        found = self.rows.new_zeros((1, self.n_groups + 1))
        counts: Array = found.scatter_add_(1, self.rows, self.rows.new_ones(self.rows.shape))[0, :-1]
        return counts

    def sums(self, terms: Array) -> Array:
        found = terms.new_zeros((len(terms), self.n_groups + 1))
        sums: Array = found.scatter_add_(1, *self._expanded(terms))[:, :-1]
        return sums

    def maxima(self, terms: Array) -> Array:
        found = terms.new_full((len(terms), self.n_groups + 1), -np.inf)
        maxima: Array = found.scatter_reduce_(1, *self._expanded(terms), reduce="amax")[:, :-1]
        return maxima

    def _expanded(self, terms: Array) -> tuple[Array, Array]:
        return self.rows.expand(len(terms), -1), terms.reshape(len(terms), -1)


def turn_columns(inputs: CheckedInputs) -> TurnColumns | None:
    """Return the columns of the turns of checked arguments, reduced block by block; None if no turns are given.

    The terms are those of the columns of sequences, in float64 whatever the size of the batch.
    Source: formulas, section 3.
    """
    if inputs.turns is None:
        return None
    with np.errstate(all="ignore"):
        blocks = inputs.blocks(max_tokens=block_tokens(inputs))
        return TurnColumns.merge(*(_reduce_block(block, block.turns) for block in blocks if block.turns is not None))


def _reduce_block(inputs: CheckedInputs, turns: TurnInputs) -> TurnColumns:
    tokens = TokenBlock.of(inputs)
    xp = tokens.xp

    def in_rows(terms: Array) -> Array:
        return terms if tokens.axis == -1 else terms.swapaxes(-1, -2)

    rows = xp.where(in_rows(tokens.valid), turns.rows(), turns.n_total)
    n = turns.n_total
    groups = _DeviceGroups(rows.reshape(1, -1), n) if is_tensor(rows) else _HostGroups.of(rows, n_groups=n)
    found = {"n_tokens": groups.counts()}
    if len(tokens.policies) > 1:
        ratios = TokenRatios.of(tokens)
        by_stem = {
            "sum_d": groups.sums(in_rows(ratios.d)),
            "sum_k3": groups.sums(in_rows(ratios.k3)),
            "max_abs_d": groups.maxima(in_rows(xp.abs(ratios.d))),
            "sum_binary_kl": groups.sums(in_rows(ratios.binary_kl)),
        }
        for row, pair in enumerate(ratios.pairs):
            found |= {f"{pair}_{stem}": array[row] for stem, array in by_stem.items()}
    return TurnColumns(turns.n_turns, {name: xp.cast(array, TURN_COLUMNS[name].dtype) for name, array in found.items()})
