"""Packs the columns of a report's turns, one row a turn, and unpacks and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trmon_client.core.arrays import DType
from trmon_client.core.column_schema import TURN_COLUMNS, TURN_STEMS, Pair
from trmon_client.core.columns import TurnColumns
from trmon_client.core.inputs.labels import MAX_TURNS
from trmon_client.core.wire.column_decoding import NOT_A_COUNT, are_counts
from trmon_client.core.wire.messages import PackedTurns, WireError, shorten_value
from trmon_client.core.wire.packed_columns import (
    DTYPES,
    ColumnBlocks,
    canonical_numbers,
    open_packed_columns,
    pack_bits,
    pack_blocks,
)

SEQUENCE = "sequence"
"""The column with the index of a turn's sequence."""


def pack_turns(turns: TurnColumns, *, accepted: Any = None) -> PackedTurns:
    """Return numpy columns of turns packed in canonical form. Args: accepted: bool [R], what the client decided."""
    columns = {**turns.by_name, SEQUENCE: turns.sequences}
    names = _names_by_dtype(columns)
    rows = {dtype: _rows(columns, group, dtype) for dtype, group in names.items()}
    table = pack_blocks(ColumnBlocks(len(turns.sequences), names, rows, (), b""))
    return PackedTurns(table, None if accepted is None else pack_bits(accepted))


def unpack_turns(packed: PackedTurns, *, n_sequences: int, pairs: tuple[Pair, ...]) -> TurnColumns:
    """Return the checked columns of a report's turns as numpy arrays.

    Args: n_sequences, pairs: those of the report's columns.
    Errors: WireError naming the field or the column that is invalid.
    """
    n_turns = packed.table.n_sequences
    if n_turns > MAX_TURNS:
        raise WireError("turns.table.n_sequences", f"must be at most {MAX_TURNS}, got {shorten_value(n_turns)}")
    expected = ("n_tokens", SEQUENCE, *(f"{pair}_{stem}" for pair in pairs for stem in TURN_STEMS))
    if packed.table.names != _names_by_dtype(dict.fromkeys(expected)) or packed.table.pairs:
        raise WireError("turns.table.names", f"must be those of a table of turns of {', '.join(pairs) or 'no pair'}")
    columns = dict(open_packed_columns(packed.table).by_name())
    sequences = columns.pop(SEQUENCE)
    if not are_counts(columns["n_tokens"]).all():
        raise WireError("turns.table.n_tokens", NOT_A_COUNT)
    if n_turns and (sequences[0] < 0 or sequences[-1] >= n_sequences or (np.diff(sequences) < 0).any()):
        raise WireError(f"turns.table.{SEQUENCE}", f"must ascend from 0 and be below {n_sequences}")
    if packed.accepted is not None and len(packed.accepted) != -(-n_turns // 8):
        raise WireError("turns.accepted", f"{n_turns} turns take {-(-n_turns // 8)} bytes of bits")
    return TurnColumns(np.bincount(sequences, minlength=n_sequences), columns)


def _names_by_dtype(columns: Mapping[str, Any]) -> dict[DType, tuple[str, ...]]:
    dtypes = {SEQUENCE: "i8", **{name: spec.dtype for name, spec in TURN_COLUMNS.items()}}
    return {dtype: tuple(sorted(name for name in columns if dtypes[name] == dtype)) for dtype in DTYPES}


def _rows(columns: Mapping[str, Any], names: tuple[str, ...], dtype: DType) -> bytes:
    return canonical_numbers(np.array([columns[name] for name in names], f"<{dtype}").tobytes(), dtype)
