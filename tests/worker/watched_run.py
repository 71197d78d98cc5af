"""One run under a scheduler, with an in-memory log and a clock that the test sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.domain.memory_log import RUN_ID, MemoryLog
from tests.domain.trainer import finished, report
from tests.store.builders import intake
from trmon.domain.alerts.delivery import Routes
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.domain.pipeline.publish import RunView
from trmon.domain.rules import rule_yaml
from trmon.fleet.views import RunViewCache
from trmon.store import Store
from trmon.worker.pass_changes import PassTally
from trmon.worker.run_context import WatchConfig
from trmon.worker.scheduler import Scheduler
from trmon.worker.thread import Worker
from trmon_client.core import wire

ORIGIN: dict[str, Any] = {"attempt": "a", "launch": "launch-1"}
WATCH_CONFIG = WatchConfig(
    rules=rule_yaml.builtin_rules, routes=Routes(receivers=("hook",)), public_url="https://trmon.example"
)


@dataclass
class RecordingObserver:
    passes: list[PassTally] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def pass_committed(self, tally: PassTally) -> None:
        self.passes.append(tally)

    def pass_failed(self, error: Exception) -> None:
        self.failures.append(error)

    @property
    def quarantined(self) -> Counter[QuarantinePart]:
        return sum((tally.quarantined for tally in self.passes), Counter())


def scheduler_over(log: Any, observer: RecordingObserver | None = None, **changed: Any) -> Scheduler:
    """Return a new scheduler over a log without any run in memory, as after a kill; `changed`: of its arguments."""
    given = {"writer": log, "watch_config": WATCH_CONFIG, "views": RunViewCache()} | changed
    return Scheduler(log, observer=observer or RecordingObserver(), **given)


def started(log: Any, **changed: Any) -> Worker:
    """Return a started worker over a log; `changed`: of its arguments."""
    given = {"views": RunViewCache(), "observer": RecordingObserver(), "watch_config": WATCH_CONFIG}
    worker = Worker(log, writer=log, **given | changed)
    worker.start()
    return worker


def receive(store: Store, *messages: wire.Message, at: float, run: str = "grpo") -> int:
    """Store messages as the API does, and return their run."""
    futures = store.reports.append([intake(message, run=run) for message in messages], now=at)
    (run_id,) = {future.result(30).run_id for future in futures}
    return run_id


def rows_of(store: Store, run_id: int) -> list[BatchRow]:
    """Return a run's rows in the order of their ordinals."""
    return store.run_log.batches_after(run_id, 0, limit=10_000)


def step_of(step: int, **fields: Any) -> wire.Report:
    """Return a step's only report, which states its own chunk count."""
    return report(step, finished=finished((step, None, 1)), **fields)


def next_report(step: int, **fields: Any) -> wire.Report:
    """Return a step's only report, which states the chunk count of the step before."""
    return report(step, finished=finished((step - 1, None, 1)) if step else [], **fields)


def run_passes(scheduler: Scheduler, run_id: int, *, at: float) -> None:
    """Run passes over a run until no message is unread."""
    more = {run_id}
    while more:
        more = scheduler.run_passes(more, now=at)


class WatchedRun:
    """One run; `restart` discards everything in memory, as a kill does."""

    def __init__(self, log: Any = None, *, watch_config: WatchConfig = WATCH_CONFIG) -> None:
        self.log = log or MemoryLog()
        self.run_id = RUN_ID
        self.view_cache = RunViewCache()
        self.observer = RecordingObserver()
        self._watch_config = watch_config
        self.restart()

    def restart(self) -> None:
        """Start a new scheduler over the same log."""
        self.scheduler = scheduler_over(self.log, self.observer, watch_config=self._watch_config, views=self.view_cache)

    def receive(self, *messages: wire.Message, at: float) -> None:
        """Store messages and run passes until none is unread."""
        self.log.receive(*messages, at=at)
        self.tick(at)

    def tick(self, at: float) -> None:
        """Run passes until no message is unread."""
        run_passes(self.scheduler, self.run_id, at=at)

    @property
    def view(self) -> RunView:
        view = self.view_cache.get(RUN_ID)
        assert view is not None
        return view


def train(watched: WatchedRun, steps: range, **fields: Any) -> None:
    """Report steps ten seconds apart; each states the chunk count of the one before."""
    for step in steps:
        watched.receive(next_report(step, **fields), at=10.0 * step)


def finish(step: int, *, rank: int = 0, outcome: str = "finished", **fields: object) -> wire.Finish:
    """Return the Finish message of a rank after its last step."""
    return wire.Finish(
        **{**ORIGIN, "sequence": 9, "rank": rank, "outcome": outcome, "sent_at": 5000.0, **fields},
        finished=finished((step, None, 1)),
    )
