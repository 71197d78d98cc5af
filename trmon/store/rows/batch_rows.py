"""How batches and decisions lie in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table

from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.batches.quarantine import Quarantined, QuarantinePart, quarantined
from trmon.domain.model.identity import BatchKey
from trmon.store.database.upsert import Row, upsert
from trmon.store.rows.name_dictionary import NameDictionary, Names, pack_values, unpack_values
from trmon.store.schema import tables


def write_batches(connection: Connection, batches: Sequence[BatchRow], *, names: NameDictionary) -> None:
    """Write batches over those with the same key."""
    rows = [_batch_row(connection, batch, names) for batch in batches]
    upsert(connection, tables.batch, key=tables.BATCH_KEY, rows=rows)


def read_batches(connection: Connection, statement: Select[Any], *, names: NameDictionary) -> list[BatchRow]:
    """Return the batches that a query of whole rows finds."""
    rows = connection.execute(statement).all()
    sets = names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
    return [_batch(row, sets) for row in rows]


def write_decisions(connection: Connection, decisions: Sequence[DecisionRow]) -> None:
    """Write decisions over those of the same batch and policy."""
    rows = [
        {
            **key_columns(decision.key),
            "policy_hash": decision.policy_hash,
            "policy_name": decision.policy_name,
            "role": decision.role.value,
            "counts": decision.counts,
            "mask_rate": decision.mask_rate,
            "accepted": decision.accepted,
        }
        for decision in decisions
    ]
    upsert(connection, tables.decision, key=(*tables.BATCH_KEY, "policy_hash"), rows=rows)


def decision_from_row(row: Any) -> DecisionRow:
    """Return a decision from its row."""
    return DecisionRow(
        key=batch_key_from_row(row),
        policy_hash=row.policy_hash,
        policy_name=row.policy_name,
        role=PolicyRole(row.role),
        counts=row.counts,
        mask_rate=row.mask_rate,
        accepted=row.accepted,
    )


def key_columns(key: BatchKey) -> dict[str, Any]:
    """Return a batch's key by column."""
    return dict(zip(tables.BATCH_KEY, (key.attempt_id, key.step, key.update), strict=True))


def batch_key_from_row(row: Any) -> BatchKey:
    """Return the key of a row."""
    return BatchKey(row.attempt_id, row.step, row.update_index)


def is_batch(table: Table, key: BatchKey) -> list[ColumnElement[bool]]:
    """Return the predicates that a row is of a batch."""
    return [table.c[name] == value for name, value in key_columns(key).items()]


def _batch_row(connection: Connection, batch: BatchRow, names: NameDictionary) -> Row:
    return key_columns(batch.key) | {
        "run_id": batch.run_id,
        "ordinal": batch.ordinal,
        "closed_at": batch.closed_at,
        "n_sequences": batch.n_sequences,
        "n_tokens": batch.n_tokens,
        "n_ranks": batch.n_ranks,
        "missing_ranks": batch.missing_ranks,
        "complete": batch.complete,
        "revised": batch.revised,
        "mode": batch.mode,
        "primary_pair": batch.primary_pair,
        "kl_is": batch.kl_is,
        "policy_hash": batch.policy_hash,
        "mismatches": batch.mismatches,
        "last_report_id": batch.last_report_id,
        "signal_names": names.id_of(connection, tuple(batch.signals)),
        "signals": pack_values(batch.signals),
        "scalar_names": names.id_of(connection, tuple(batch.scalars)),
        "scalars": pack_values(batch.scalars),
        "quarantined": batch.quarantined or None,
    }


def _batch(row: Any, sets: Mapping[int, Names]) -> BatchRow:
    """A row whose numbers are damaged has none, and says so."""
    try:
        signals, scalars = (
            unpack_values(sets[row.signal_names], row.signals),
            unpack_values(sets[row.scalar_names], row.scalars),
        )
    except ValueError as error:
        return _placed(row, signals={}, scalars={}).without([quarantined(QuarantinePart.ROW, "the stored row", error)])
    return _placed(row, signals=signals, scalars=scalars)


def _placed(row: Any, *, signals: dict[str, float], scalars: dict[str, float]) -> BatchRow:
    return BatchRow(
        run_id=row.run_id,
        key=batch_key_from_row(row),
        ordinal=row.ordinal,
        closed_at=row.closed_at,
        n_sequences=row.n_sequences,
        n_tokens=row.n_tokens,
        n_ranks=row.n_ranks,
        missing_ranks=tuple(row.missing_ranks),
        complete=row.complete,
        revised=row.revised,
        mode=row.mode,
        primary_pair=row.primary_pair,
        kl_is=row.kl_is,
        policy_hash=row.policy_hash,
        mismatches=row.mismatches,
        last_report_id=row.last_report_id,
        signals=signals,
        scalars=scalars,
        quarantined=msgspec.convert(row.quarantined or (), tuple[Quarantined, ...]),
    )
