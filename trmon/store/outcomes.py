"""Writing what one pass of a worker changes, all of it or nothing."""

from __future__ import annotations

from typing import Any

from trmon.domain.outcome import Outcome
from trmon.store import schema
from trmon.store.alertrows import write_alerts, write_deliveries, write_events
from trmon.store.batchrows import write_batches, write_decisions
from trmon.store.chunks import extend_history
from trmon.store.events import write_stream
from trmon.store.group import Transaction
from trmon.store.namesets import NameSets
from trmon.store.policies import write_policy
from trmon.store.runrows import write_run
from trmon.store.upsert import upsert


def write_outcome(transaction: Transaction, outcome: Outcome, *, names: NameSets) -> None:
    """Write an outcome; batches, decisions and alerts are written over, known transitions and deliveries stay."""
    connection = transaction.connection
    write_batches(connection, outcome.batches, names=names)
    write_decisions(connection, outcome.decisions)
    extend_history(connection, outcome.batches, names=names)
    write_alerts(connection, outcome.alerts)
    write_events(connection, outcome.alert_events)
    write_deliveries(connection, outcome.deliveries)
    write_stream(connection, outcome.run_id, events=outcome.events)
    if outcome.policy is not None:
        write_policy(connection, outcome.run_id, version=outcome.policy)
    write_run(transaction, outcome.run_id, values=_run_columns(outcome), tags=outcome.tags)
    upsert(connection, schema.run_state, key=("run_id",), rows=[_state_row(outcome)])


def _run_columns(outcome: Outcome) -> dict[str, Any]:
    given = {
        "state": outcome.state and outcome.state.value,
        "last_step": outcome.last_step,
        "attempt_id": outcome.attempt_id,
        "owner": outcome.owner,
        "config": outcome.config or None,
        "mode": outcome.mode,
    }
    return {name: value for name, value in given.items() if value is not None}


def _state_row(outcome: Outcome) -> dict[str, Any]:
    row = {
        "run_id": outcome.run_id,
        "report_id": outcome.frontier.report_id,
        "notice_id": outcome.frontier.notice_id,
    }
    if outcome.checkpoint is None:
        return row
    return row | {
        "ordinal": outcome.checkpoint.ordinal,
        "version": outcome.checkpoint.version,
        "state": outcome.checkpoint.state,
    }
