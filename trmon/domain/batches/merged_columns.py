"""Merge the columns of a batch's reports, where some reports may lack log-probs that the others have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, LABELS, N_BINS, TURN_COLUMNS, Pair
from trmon_client.core.columns.turn_columns import TurnColumns

_LABEL_NAMES = {spec.name for spec in LABELS}


def merge_columns(parts: Sequence[Columns]) -> Columns:
    """Return the sequences of all parts in order.

    A part without the primary pair of the most sequences lacks log-probs that its batch has: its tokens count as
    invalid, so that one rank cannot hide a pair of the whole batch. Its rewards stay with its sequences.
    Args: parts: numpy, one or more. Source: formulas, section 2.
    """
    if len({part.pairs for part in parts}) == 1:
        return Columns.merge(*parts)
    pair = _primary_of_most(parts)
    if pair is None:
        return Columns.merge(*parts)
    like = next(part for part in parts if pair in part.pairs)
    return Columns.merge(*(part if pair in part.pairs else _as_invalid(part, like=like) for part in parts))


def _primary_of_most(parts: Sequence[Columns]) -> Pair | None:
    n_by_pair: Counter[Pair | None] = Counter()
    for part in parts:
        n_by_pair[part.primary] += part.n_sequences
    return n_by_pair.most_common(1)[0][0]


def _as_invalid(part: Columns, *, like: Columns) -> Columns:
    """Return a part whose tokens are all invalid, with the columns and histograms of another part."""
    n = part.n_sequences
    reduced = {
        name: np.full(n, COLUMNS[name].identity, COLUMNS[name].dtype) for name in like if name not in _LABEL_NAMES
    }
    labels = {name: part[name] for name in part if name in _LABEL_NAMES}
    counted = {"n_invalid": part["n_invalid"] + part["n_tokens"]}
    turns = None if part.turns is None or like.turns is None else _as_invalid_turns(part.turns, like=like.turns)
    nothing = np.zeros(N_BINS, np.int64)
    return replace(
        part,
        by_name={**reduced, **labels, **counted},
        histograms=dict.fromkeys(like.histograms, nothing),
        kl_is=like.kl_is,
        kl_pair=like.kl_pair,
        turns=turns,
    )


def _as_invalid_turns(turns: TurnColumns, *, like: TurnColumns) -> TurnColumns:
    specs = [TURN_COLUMNS[name] for name in like.by_name]
    reduced = {spec.name: np.full(len(turns.n_tokens), spec.identity, spec.dtype) for spec in specs}
    return TurnColumns(turns.n_turns, reduced)
