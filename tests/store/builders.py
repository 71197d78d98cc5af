"""Builds trainer messages, batches, alerts and deliveries for store tests, and blocks the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from threading import Event
from typing import Any, TypeVar

import msgspec
import numpy as np
from sqlalchemy import Executable, Select, Table, func, select, text

from tests.domain.alerts.alert_builders import notification_of
from tests.fixtures.messages import one_by_one
from trmon.domain.access import EVERYTHING, Access, Scope
from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.messages import AnyReport, PreparedMessage, WriteResult
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.domain.severity import Severity
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.registry import ArrivedMessage
from trmon.store.rows import messages
from trmon.store.rows.mapping import Page
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

T = TypeVar("T")

NOW = 1_800_000_000.0
"""The server's time, in seconds since the epoch."""
CODE = Access(name="code", scopes=frozenset(Scope), project="code")
"""The access of a caller who may do everything in one project."""


@cache
def realistic_columns(*, n: int = 8, length: int = 64, seed: int = 0) -> Columns:
    """Return columns of three policies with small noise between them and a few outlier tokens."""
    rng = np.random.default_rng(seed)
    rollout = -rng.gamma(0.4, 0.8, (n, length))
    old = np.minimum(rollout + rng.normal(0, 0.004, (n, length)) * rng.gamma(0.5, 2.0, (n, length)), 0)
    new = np.minimum(old + rng.normal(0, 0.02, (n, length)), 0)
    lengths = rng.integers(length // 4, length + 1, n)
    return columns(
        rollout_logprobs=rollout.astype(np.float32),
        old_logprobs=old.astype(np.float32),
        logprobs=new.astype(np.float32),
        mask=np.arange(length) < lengths[:, None],
        advantages=rng.normal(size=n),
        rewards=rng.integers(0, 2, n).astype(float),
        group_ids=np.arange(n) // 4,
    )


def report(*, step: int = 0, n: int = 8, seed: int = 0, **fields: Any) -> wire.Report:
    """Return a report of attempt "a", launch "launch-1"; accepts other fields of wire.Report."""
    made = realistic_columns(n=n, seed=seed)
    given = {"attempt": "a", "launch": "launch-1"} | fields
    return wire.Report(step=step, **one_by_one(made), **given)


def intake(message: wire.Message, *, project: str = "math", run: str = "grpo") -> PreparedMessage:
    """Return a prepared message of a run; a report without acceptance bits accepts every sequence."""
    key = RunKey(project, run)
    message = msgspec.structs.replace(message, project=project, run=run)
    if not isinstance(message, wire.Report):
        return PreparedMessage(
            key=key,
            message=message,
            digest=messages.message_digest(message),
            payload=messages.pack_notice(message),
        )
    parcel, n_tokens = wire.storable_columns(message)
    fields = msgspec.structs.replace(message, columns={}, histograms={}, parcel=None)
    return PreparedMessage(
        key=key,
        message=fields,
        digest=messages.report_digest(fields, parcel=parcel),
        payload=messages.pack_report(fields, parcel=parcel),
        n_sequences=parcel.n_sequences,
        n_tokens=n_tokens,
        accepted=fields.accepted or wire.pack_bits(np.ones(parcel.n_sequences, bool)),
    )


def report_intake(project: str = "math", run: str = "grpo", **fields: Any) -> PreparedMessage:
    """Return a prepared report of a run; accepts the fields of `report`."""
    return intake(report(**fields), project=project, run=run)


def notice_intake(kind: type[wire.Message], project: str = "math", run: str = "grpo", **fields: Any) -> PreparedMessage:
    """Return a prepared notice of attempt "a", launch "launch-1"; accepts the fields of its kind."""
    return intake(kind(**{"attempt": "a", "launch": "launch-1"} | fields), project=project, run=run)


def start_intake(project: str = "math", run: str = "grpo", **fields: Any) -> PreparedMessage:
    """Return a prepared start of a run; accepts the fields of wire.Start."""
    return notice_intake(wire.Start, project, run, **fields)


def scalars_intake(step: int, *, run: str = "grpo", **fields: Any) -> PreparedMessage:
    """Return prepared scalars of a step; accepts other fields of wire.Scalars."""
    return notice_intake(wire.Scalars, run=run, step=step, **{"sequence": step, "values": {"lr": 1.0}} | fields)


def batch_key(attempt_id: int, step: int, update: int | None = None) -> BatchKey:
    return BatchKey(attempt_id, step, update)


def batch(key: BatchKey, *, run_id: int, ordinal: int, **fields: Any) -> BatchRow:
    """Return a closed batch; accepts other fields of BatchRow."""
    usual = {
        "closed_at": NOW + ordinal,
        "n_sequences": 8,
        "n_tokens": 512,
        "n_ranks": 1,
        "missing_ranks": (),
        "complete": True,
        "revised": False,
        "mode": "observe",
        "primary_pair": "total",
        "kl_is": "sampled",
        "policy_hash": None,
        "mismatches": 0,
        "last_report_id": ordinal,
        "signals": {"total_kl_k3": 0.001 * ordinal},
        "scalars": {},
    }
    return BatchRow(run_id=run_id, key=key, ordinal=ordinal, **usual | fields)


def decision(key: BatchKey, **fields: Any) -> DecisionRow:
    """Return the decision of the active policy on a batch; accepts other fields of DecisionRow."""
    usual = {"policy_hash": "h", "policy_name": "p", "role": PolicyRole.ACTIVE, "counts": {"masked": 1}}
    return DecisionRow(key=key, **usual | {"mask_rate": 0.125, "accepted": b"\x7f"} | fields)


def append(store: Store, *intakes: PreparedMessage, now: float = NOW) -> list[WriteResult]:
    """Append messages and wait until they are committed."""
    return [future.result(timeout=30) for future in store.reports.append(intakes, now=now)]


def begin(store: Store, *runs: str) -> list[int]:
    """Start runs named project/run and return their ids."""
    return [append(store, start_intake(*run.split("/")))[0].run_id for run in runs]


def stored_reports(store: Store, run_id: int, *, after: int = 0) -> list[AnyReport]:
    """Return a run's reports with a larger id, oldest first."""
    return store.reports.unread_of(run_id, Frontier(report_id=after), limit=1_000_000).reports


def beat(store: Store, *, at: float, project: str = "math", run: str = "grpo", launch: str = "launch-1") -> None:
    """Send a heartbeat of attempt "a"."""
    message = wire.Heartbeat(attempt="a", launch=launch)
    store.reports.touch([ArrivedMessage(key=RunKey(project, run), message=message, at=at)])


def alert(*, run_id: int, step: int = 3, **fields: Any) -> Alert:
    """Return a firing alert; accepts other fields of Alert."""
    usual = {
        "identity": "corrupt_logprobs",
        "rule": "corrupt_logprobs",
        "severity": Severity.PAGE,
        "state": AlertState.FIRING,
        "attempt_id": 1,
        "update": None,
        "since_at": NOW,
        "updated_at": NOW,
        "value": 12.5,
        "threshold": 10.0,
        "summary": "log-probs are corrupt",
        "labels": {"team": "math"},
    }
    return Alert(run_id=run_id, step=step, **usual | fields)


def alert_event(of: Alert, **fields: Any) -> AlertEvent:
    """Return the transition of an alert to its state; accepts other fields of AlertEvent."""
    usual = {"silence_started_at": None, "state": of.state, "at": of.updated_at, "value": of.value}
    return AlertEvent(
        identity=of.identity,
        run_id=of.run_id,
        attempt_id=of.attempt_id,
        step=of.step,
        update=of.update,
        threshold=of.threshold,
        summary=of.summary,
        **usual | fields,
    )


def delivery(dedup_key: str, **fields: Any) -> Delivery:
    """Return a notification that is not in the outbox yet; accepts other fields of Delivery."""
    usual = {"receiver": "hook", "notification": notification_of(alert(run_id=1)), "due_at": NOW}
    return Delivery(id=0, dedup_key=dedup_key, **usual | fields)


def silence(store: Store, **fields: Any) -> Silence:
    """Create a silence of all projects, for a minute from NOW on; accepts the fields of Silence."""
    matcher = Matcher(label="run", operator=MatchOperator.LIKE, value="gr*")
    usual = {
        "project": None,
        "matchers": (matcher,),
        "author": "ana",
        "note": "n",
        "starts_at": NOW,
        "ends_at": NOW + 60,
    }
    return store.silences.create(Silence(id=0, **usual | fields), access=EVERYTHING, now=NOW).result(timeout=30)


def commit(store: Store, run_id: int, **fields: Any) -> None:
    """Commit a run update with the given fields of RunUpdate and wait for it."""
    frontier = fields.pop("frontier", Frontier())
    store.run_log.commit([RunUpdate(run_id=run_id, frontier=frontier, **fields)])[0].result(timeout=30)


def paged(read: Callable[..., Page[T]], *arguments: Any, **options: Any) -> list[T]:
    """Return the items of all pages of a list, whose options have the limit of a page."""
    items, after = list[T](), None
    while True:
        page = read(*arguments, access=EVERYTHING, after=after, **options)
        assert len(page.items) <= options["limit"]
        items += page.items
        if (after := page.next) is None:
            return items


def execute(store: Store, statement: Executable, rows: list[dict[str, Any]] | None = None) -> None:
    """Run a statement in a transaction of the writer, as if another process did."""
    store.writer.submit(lambda transaction: transaction.connection.execute(statement, rows) and None).result(timeout=30)


def plan_of(engines: Engines, query: Select[Any]) -> str:
    """Return how the database would run a query, after it has looked at its tables."""
    options = {"literal_binds": True, "render_postcompile": True}
    explain = "EXPLAIN (COSTS OFF)" if engines.is_shared else "EXPLAIN QUERY PLAN"
    with engines.writing.begin() as connection:
        connection.execute(text("ANALYZE"))
        rows = connection.exec_driver_sql(f"{explain} {query.compile(connection, compile_kwargs=options)}")
        return "\n".join(str(row[-1]) for row in rows)


def delivery_states(store: Store) -> Counter[str]:
    """Return how many deliveries are in each state."""
    with store._reader.connect() as connection:
        return Counter(connection.scalars(select(tables.delivery.c.state)))


def count(store: Store, table: Table) -> int:
    with store._reader.connect() as connection:
        return connection.scalars(select(func.count()).select_from(table)).one()


class Gate:
    """Keeps the writer blocked inside a transaction until the context exits."""

    def __init__(self, writer: GroupCommit) -> None:
        self._entered, self._opened = Event(), Event()
        self._writer = writer

    def __enter__(self) -> Gate:
        self._writer.submit(self._hold)
        assert self._entered.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.set()

    def _hold(self, _: Transaction) -> None:
        self._entered.set()
        assert self._opened.wait(10)
