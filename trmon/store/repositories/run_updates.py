"""Write the updates of many runs with few statements; each run's update is complete or absent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from trmon.domain.state.run_update import RunUpdate
from trmon.store.database.upsert import upsert
from trmon.store.repositories.policies import write_policy
from trmon.store.rows.alert_rows import clear_acknowledgements, write_alert_events, write_alerts, write_deliveries
from trmon.store.rows.batch_rows import write_batches, write_decisions
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.rows.run_rows import update_runs, write_tags
from trmon.store.rows.signal_chunks import extend_chunks
from trmon.store.schema import tables
from trmon.store.writing.transaction import Transaction


def write_run_updates(transaction: Transaction, updates: Sequence[RunUpdate], *, names: NameDictionary) -> None:
    """Write updates: batches, decisions and alerts replace stored ones; stored transitions and deliveries stay."""
    connection = transaction.connection
    batches = list(chain.from_iterable(update.batches for update in updates))
    write_batches(connection, batches, names=names)
    write_decisions(connection, list(chain.from_iterable(update.decisions for update in updates)))
    extend_chunks(connection, batches, names=names)
    events = list(chain.from_iterable(update.alert_events for update in updates))
    clear_acknowledgements(connection, events)
    write_alerts(connection, list(chain.from_iterable(update.alerts for update in updates)))
    write_alert_events(connection, events)
    deliveries = list(chain.from_iterable(update.deliveries for update in updates))
    write_deliveries(connection, deliveries)
    transaction.receivers.update(delivery.receiver for delivery in deliveries)
    transaction.events.extend((update.run_id, event) for update in updates for event in update.events)
    for update in updates:
        if update.policy is not None:
            write_policy(connection, update.run_id, version=update.policy)
            transaction.edited.add(update.run_id)
        write_tags(connection, update.run_id, tags=update.tags)
    update_runs(connection, {update.run_id: _run_columns(update) for update in updates})
    _write_states(transaction, updates)


def _write_states(transaction: Transaction, updates: Sequence[RunUpdate]) -> None:
    """Write the states with one statement for all runs that change the same columns."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in map(_state_row, updates):
        by_columns.setdefault(tuple(row), []).append(row)
    for rows in by_columns.values():
        upsert(transaction.connection, tables.run_state, key=("run_id",), rows=rows)


def _run_columns(update: RunUpdate) -> dict[str, Any]:
    columns = {
        "state": update.state and update.state.value,
        "last_step": update.last_step,
        "attempt_id": update.attempt_id,
        "owner": update.owner,
        "config": update.config or None,
        "mode": update.mode,
        "ending": msgspec.to_builtins(update.ending),
        "warnings": msgspec.to_builtins(update.warnings) or None,
    }
    return {name: value for name, value in columns.items() if value is not None}


def _state_row(update: RunUpdate) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": update.run_id,
        "report_id": update.frontier.report_id,
        "notice_id": update.frontier.notice_id,
    }
    if update.checkpoint is not None:
        row |= {
            "ordinal": update.checkpoint.ordinal,
            "version": update.checkpoint.version,
            "state": update.checkpoint.state,
        }
    return row if update.outlook is None else row | {"outlook": update.outlook.document()}
