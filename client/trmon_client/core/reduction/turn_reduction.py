"""Reduces tokens to the columns of their turns."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.schema import TURN_COLUMNS
from trmon_client.core.columns.turn_columns import TurnColumns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.turn_inputs import TurnInputs
from trmon_client.core.reduction.block_size import block_tokens
from trmon_client.core.reduction.kl_estimators import TokenRatios
from trmon_client.core.reduction.token_block import TokenBlock
from trmon_client.core.reduction.turn_groups import token_groups


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
    groups = token_groups(rows, n_groups=turns.n_total)
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
