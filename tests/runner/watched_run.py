"""A run that is watched in a test: its log, its trainer, the rounds over it, and a clock that is set by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.domain.memory_log import RUN_ID, MemoryLog
from tests.domain.trainer import finished, report
from trmon.domain.alerts.routing import Routes
from trmon.domain.rules import rule_yaml
from trmon.runner.pass_changes import PassTally
from trmon.runner.run_context import WatchConfig
from trmon.runner.scheduler import Scheduler
from trmon.views.run_view_cache import RunView, RunViewCache
from trmon_client.core import wire

ORIGIN = {"attempt": "a", "launch": "launch-1"}
VIGIL = WatchConfig(
    rules=rule_yaml.builtin_rules, routes=Routes(receivers=("hook",)), public_url="https://trmon.example"
)


@dataclass
class Counted:
    """An observer that remembers."""

    passes: list[PassTally] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def passed(self, tally: PassTally) -> None:
        """See Observer."""
        self.passes.append(tally)

    def failed(self, error: Exception) -> None:
        """See Observer."""
        self.failures.append(error)


class Watched:
    """One run under rounds; `restart` throws away everything in memory, as a kill does."""

    def __init__(self, *, watch_config: WatchConfig = VIGIL) -> None:
        self.log = MemoryLog()
        self.live = RunViewCache()
        self.counted = Counted()
        self._watch_config = watch_config
        self.restart()

    def restart(self) -> None:
        """Begin anew with what was written."""
        self.rounds = Scheduler(
            self.log, outcomes=self.log, watch_config=self._watch_config, display=self.live, observer=self.counted
        )

    def hear(self, *messages: wire.Message, at: float) -> None:
        """Receive messages and make rounds until nothing more waits."""
        self.log.receive(*messages, at=at)
        self.tick(at)

    def tick(self, at: float) -> None:
        """Make rounds until nothing more waits."""
        more = {RUN_ID}
        while more:
            more = self.rounds.make(more, now=at)

    @property
    def view(self) -> RunView:
        """What is shown of the run."""
        view = self.live.get(RUN_ID)
        assert view is not None
        return view


def train(watched: Watched, steps: range, *, health: str = "healthy", **fields: object) -> None:
    """Report steps one after the other, ten seconds apart; each states the chunk count of the one before."""
    for step in steps:
        counts = finished((step - 1, None, 1)) if step else []
        watched.hear(report(step, health=health, finished=counts, **fields), at=10.0 * step)


def finish(step: int, *, rank: int = 0, outcome: str = "finished", **fields: object) -> wire.Finish:
    """Return the end of a rank, `step` its last one."""
    return wire.Finish(
        **{**ORIGIN, "sequence": 9, "rank": rank, "outcome": outcome, "sent_at": 5000.0, **fields},
        finished=finished((step, None, 1)),
    )
