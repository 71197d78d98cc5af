"""Replay recordings through the service's ingest and worker over a database, and read what people were told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import structs

from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import AlertState, TransitionReason
from trmon.domain.alerts.delivery import Routes
from trmon.domain.alerts.notification import Notification
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.severity import Severity
from trmon.fleet.views import RunViewCache
from trmon.ingest.service import validate_message
from trmon.store import Store
from trmon.worker.pass_changes import PassTally
from trmon.worker.run_context import WatchConfig
from trmon.worker.scheduler import Scheduler
from trmon_client.core import wire
from trmon_client.core.policies.policy import preset
from trmon_research.detection.recorded_run import RecordedCourse, messages_in

RECEIVER = "pager"
MESSAGES_PER_PASS = 30
"""Ten steps of two updates: alerts are judged step by step, however many steps a pass reads."""
SECONDS_PER_MESSAGE = 5.0
UPDATES = (TransitionReason.REVISED.value, TransitionReason.WORSENED.value)
"""Reasons of a notification that continues an episode."""


@dataclass(frozen=True, slots=True)
class ToldNotification:
    """One notification: when, of which rule, since when, why; the finding or rule that led an incident."""

    step: int
    since_step: int
    rule: str
    state: str
    reason: str
    severity: str
    cause: str | None

    @classmethod
    def of(cls, notification: Notification) -> ToldNotification:
        """Return what a notification said."""
        cause, alert = notification.cause, notification.alert
        return cls(
            step=notification.step,
            since_step=alert.since_step,
            rule=alert.rule,
            state=notification.status.value,
            reason=notification.reason,
            severity=alert.severity.value,
            cause=None if cause is None else cause.rule,
        )

    @property
    def opens(self) -> bool:
        """Whether it opened an episode that people had not heard of."""
        return self.state == AlertState.FIRING.value and self.reason not in UPDATES

    @property
    def pages(self) -> bool:
        """Whether it was of the severity that wakes people."""
        return self.state == AlertState.FIRING.value and self.severity == Severity.PAGE.value


@dataclass(frozen=True, slots=True)
class FirstFiring:
    """The first step of which the alert of a finding or a rule was, and its severity."""

    rule: str
    severity: str
    step: int


@dataclass(frozen=True, slots=True)
class Told:
    """What one run gave: its rows, the notifications in their order, and the first firing of each rule."""

    n_rows: int
    notifications: tuple[ToldNotification, ...]
    fired: tuple[FirstFiring, ...]

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Told:
        """Return what `to_json` wrote."""
        read = json.loads(text)
        told = tuple(ToldNotification(**one) for one in read["notifications"])
        return cls(read["n_rows"], told, tuple(FirstFiring(**one) for one in read["fired"]))


class _RaisingObserver:
    """An observer to which a failed pass is an error of the measurement."""

    def pass_committed(self, tally: PassTally, /) -> None:
        """See PassObserver."""

    def pass_failed(self, error: Exception, /) -> None:
        """See PassObserver."""
        raise error


def replay(course: RecordedCourse) -> Told:
    """Replay a recording through a separate database, and return what was sent."""
    with replayed(list(messages_in(course.folder))) as (store, run_id):
        return _read_told(store, run_id)


@contextmanager
def replayed(messages: Sequence[bytes]) -> Iterator[tuple[Store, int]]:
    """Give a separate database with the messages of one run, all judged, and the run's id."""
    with _migrated_store() as store:
        scheduler = Scheduler(
            store.run_log,
            writer=store.run_log,
            watch_config=WatchConfig(rules=builtin_rules, routes=Routes(receivers=(RECEIVER,))),
            views=RunViewCache(),
            observer=_RaisingObserver(),
        )
        run_id, now = 0, 0.0
        for some in _chunks(messages):
            prepared = [_prepared(message) for message in some]
            now += SECONDS_PER_MESSAGE * len(some)
            for future in store.reports.append(prepared, now=now):
                run_id = future.result(60).run_id
            more = {run_id}
            while more:
                more = scheduler.run_passes(more, now=now)
        yield store, run_id


def _prepared(message: bytes) -> PreparedMessage:
    """Return a message as the ingest stores it, without the size of a spool that had nowhere to go."""
    decoded = wire.decode(message, media_type=wire.MSGPACK)
    if isinstance(decoded, wire.Report | wire.Heartbeat | wire.Finish):
        decoded = structs.replace(decoded, losses=structs.replace(decoded.losses, spooled_bytes=0))
    key = RunKey.checked(decoded.project, decoded.run)
    return validate_message(decoded, key, policy_of=lambda _: preset("trm_auto"))


@contextmanager
def _migrated_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'trmon.db'}")
        store.migrate()
        try:
            yield store
        finally:
            store.close()


def _chunks(messages: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(messages), MESSAGES_PER_PASS):
        yield messages[start : start + MESSAGES_PER_PASS]


def _read_told(store: Store, run_id: int) -> Told:
    due = sorted(store.outbox.due(now=1e12, limit=10_000), key=lambda delivery: delivery.id)
    notifications = [ToldNotification.of(delivery.notification) for delivery in due]
    listed = store.alerts.list(access=EVERYTHING, limit=10_000).items
    fired = []
    for rule in sorted({item.alert.rule for item in listed}):
        alerts = [item.alert for item in listed if item.alert.rule == rule]
        events = [
            event
            for identity in {alert.identity for alert in alerts}
            for event in store.alerts.events(identity, access=EVERYTHING, limit=10_000).items
            if event.state is AlertState.FIRING
        ]
        if events:
            first = min(event.step for event in events)
            fired.append(FirstFiring(rule, alerts[0].severity.value, first))
    rows = store.run_log.batches_after(run_id, 0, limit=1_000_000)
    return Told(len(rows), tuple(notifications), tuple(fired))
