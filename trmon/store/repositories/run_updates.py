"""Writing what passes of workers change: all of one run's pass or nothing of it, and many runs' in few statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

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


def write_run_updates(transaction: Transaction, outcomes: Sequence[RunUpdate], *, names: NameDictionary) -> None:
    """Write outcomes; batches, decisions and alerts are written over, known transitions and deliveries stay."""
    connection = transaction.connection
    batches = list(chain.from_iterable(outcome.batches for outcome in outcomes))
    write_batches(connection, batches, names=names)
    write_decisions(connection, list(chain.from_iterable(outcome.decisions for outcome in outcomes)))
    extend_chunks(connection, batches, names=names)
    events = list(chain.from_iterable(outcome.alert_events for outcome in outcomes))
    clear_acknowledgements(connection, events)
    write_alerts(connection, list(chain.from_iterable(outcome.alerts for outcome in outcomes)))
    write_alert_events(connection, events)
    deliveries = list(chain.from_iterable(outcome.deliveries for outcome in outcomes))
    write_deliveries(connection, deliveries)
    transaction.addressed.update(delivery.receiver for delivery in deliveries)
    transaction.said.extend((outcome.run_id, event) for outcome in outcomes for event in outcome.events)
    for outcome in outcomes:
        if outcome.policy is not None:
            write_policy(connection, outcome.run_id, version=outcome.policy)
            transaction.edited.add(outcome.run_id)
        write_tags(connection, outcome.run_id, tags=outcome.tags)
    update_runs(connection, {outcome.run_id: _run_columns(outcome) for outcome in outcomes})
    _write_states(transaction, outcomes)


def _write_states(transaction: Transaction, outcomes: Sequence[RunUpdate]) -> None:
    """Those with a checkpoint or an outlook and those without write different columns."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in map(_state_row, outcomes):
        alike.setdefault(tuple(row), []).append(row)
    for rows in alike.values():
        upsert(transaction.connection, tables.run_state, key=("run_id",), rows=rows)


def _run_columns(outcome: RunUpdate) -> dict[str, Any]:
    given = {
        "state": outcome.state and outcome.state.value,
        "last_step": outcome.last_step,
        "attempt_id": outcome.attempt_id,
        "owner": outcome.owner,
        "config": outcome.config or None,
        "mode": outcome.mode,
    }
    return {name: value for name, value in given.items() if value is not None}


def _state_row(outcome: RunUpdate) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": outcome.run_id,
        "report_id": outcome.frontier.report_id,
        "notice_id": outcome.frontier.notice_id,
    }
    if outcome.checkpoint is not None:
        row |= {
            "ordinal": outcome.checkpoint.ordinal,
            "version": outcome.checkpoint.version,
            "state": outcome.checkpoint.state,
        }
    return row if outcome.outlook is None else row | {"outlook": outcome.outlook.document()}
