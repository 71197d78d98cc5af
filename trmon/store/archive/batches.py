"""Closed batches in an archive: signals and scalars as structs, a field each, absent ones null and NaN as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, select

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import Quarantined
from trmon.domain.model.identity import BatchKey
from trmon.store.rows.name_dictionary import NameDictionary, Names
from trmon.store.schema import tables

NAME = "batches"
_FIELDS: dict[str, Any] = {
    "attempt_id": pa.int64(),
    "step": pa.int64(),
    "update_index": pa.int64(),
    "ordinal": pa.int64(),
    "closed_at": pa.float64(),
    "n_sequences": pa.int64(),
    "n_tokens": pa.int64(),
    "n_ranks": pa.int64(),
    "missing_ranks": pa.list_(pa.int64()),
    "complete": pa.bool_(),
    "revised": pa.bool_(),
    "mode": pa.string(),
    "primary_pair": pa.string(),
    "kl_is": pa.string(),
    "policy_hash": pa.string(),
    "mismatches": pa.int64(),
    "last_report_id": pa.int64(),
    "quarantined": pa.list_(pa.struct([pa.field(name, pa.string()) for name in ("part", "place", "reason")])),
}
_KEY = ("attempt_id", "step", "update_index")
_PLAIN = [name for name in _FIELDS if name not in (*_KEY, "quarantined")]


@dataclass(frozen=True, slots=True)
class BatchNames:
    """Which signals and scalars a project's batches have: the same schema for all its runs."""

    signals: Names
    scalars: Names

    @property
    def schema(self) -> Any:
        """The Arrow schema of batches; parquet has no struct without a field."""
        structs = {"signals": self.signals, "scalars": self.scalars}
        numbers = [pa.field(name, _struct(names)) for name, names in structs.items() if names]
        return pa.schema([*(pa.field(name, kind) for name, kind in _FIELDS.items()), *numbers])


def batch_names(connection: Connection, project: str, *, names: NameDictionary) -> BatchNames:
    """Return the names that the batches of a project have, in the order in which they first came."""
    table = tables.batch
    found = select(table.c.signal_names, table.c.scalar_names).join(tables.run).where(tables.run.c.project == project)
    pairs = sorted(tuple(row) for row in connection.execute(found.distinct()))
    sets = names.read(connection, {id_ for pair in pairs for id_ in pair})
    return BatchNames(*(_union(sets[id_] for id_ in ids) for ids in (zip(*pairs, strict=True) if pairs else ((), ()))))


def batches_to_arrow(batches: Sequence[BatchRow], vocabulary: BatchNames) -> Any:
    """Return batches as a record batch."""
    return pa.RecordBatch.from_pylist([_row(batch) for batch in batches], schema=vocabulary.schema)


def batches_from_arrow(batch: Any) -> list[BatchRow]:
    """Return the batches of a record batch, of no run and under the ids it has. Errors: KeyError for other columns."""
    return [_batch(row) for row in batch.to_pylist()]


def _row(batch: BatchRow) -> dict[str, Any]:
    key = batch.key
    plain = {name: getattr(batch, name) for name in _PLAIN}
    numbers = {
        "signals": batch.signals,
        "scalars": batch.scalars,
        "quarantined": msgspec.to_builtins(batch.quarantined),
    }
    return {"attempt_id": key.attempt_id, "step": key.step, "update_index": key.update, **plain, **numbers}


def _batch(row: dict[str, Any]) -> BatchRow:
    plain = {name: row[name] for name in _PLAIN} | {"missing_ranks": tuple(row["missing_ranks"])}
    return BatchRow(
        run_id=0,
        key=BatchKey(row["attempt_id"], row["step"], row["update_index"]),
        signals=_present(row.get("signals")),
        scalars=_present(row.get("scalars")),
        quarantined=msgspec.convert(row.get("quarantined") or (), tuple[Quarantined, ...]),
        **plain,
    )


def _present(values: dict[str, float | None] | None) -> dict[str, float]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _struct(names: Names) -> Any:
    return pa.struct([pa.field(name, pa.float64()) for name in names])


def _union(sets: Iterable[Names]) -> Names:
    return tuple(dict.fromkeys(name for names in sets for name in names))
