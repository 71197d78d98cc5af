"""Causes faults under load at random moments; verifies that nothing is lost, doubled, missing or repeated.

PYTHONPATH=. python -m benchmarks.load.soak [--rounds 20] [--seed 0] [--fleet] [--faults SIGKILL,clock]
PYTHONPATH=. python -m benchmarks.load.soak --reports 1000000 [--per-second 50] [--plot docs/million-reports.svg]
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.load.alert_check import AlertCheck, check_alerts
from benchmarks.load.connection import Answer, Connection
from benchmarks.load.endurance import endure
from benchmarks.load.processes import cpu_seconds, load_average, unwind_on_sigterm, waited_seconds
from benchmarks.load.sending import OK, Pace, Place, Senders, Sent
from benchmarks.load.soak_targets import Target, embedded_target, fleet_target
from benchmarks.load.verification import StepVerdicts, verify, wrong_steps
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.receiver import WebhookServer
from trmon_client.core import wire

LONGEST_SECONDS = 4 * 3600.0
PAUSE_SECONDS = (0.5, 2.5)
"""The shortest and the longest time between a recovery and the next fault."""
DRIFT_SECONDS = 600.0
"""Time limit for the service to catch up after the last fault."""
PER_SECOND = 20.0
WORKLOAD = Workload(n_runs=3, n_ranks=2, n_sequences=16, drift_from=25, drift_steps=60)
MAX_ROUNDS = 100
PROBE = Workload(first_run=90_000, n_ranks=1, n_sequences=4)
ANSWER_SECONDS = 3.0
RECOVERY_SECONDS = 180.0
"""Time limit of a recovery: a process whose start needs 4 s of CPU time takes a minute on a busy machine."""
RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """Which faults to cause, how often, and during how many reports per second.

    Each round causes each fault once; no round begins after `seconds`.
    """

    faults: tuple[str, ...]
    n_rounds: int
    workload: Workload = WORKLOAD
    seconds: float = 3600.0
    per_second: float = PER_SECOND
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fault: when it began, by `time.perf_counter`, and the seconds from its end.

    `acknowledged_seconds` count until a new report is acknowledged, `recovery_seconds` until its batch is closed; inf
    if that took too long.
    """

    fault: str
    began: float
    acknowledged_seconds: float
    recovery_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """The results of a soak; `wrong` holds the steps of which something is lost or stored twice."""

    trials: tuple[Trial, ...]
    sent: Sent
    wrong: StepVerdicts
    alerts: AlertCheck

    @property
    def is_clean(self) -> bool:
        """Whether each fault was recovered from, and nothing was lost, doubled, missing or repeated."""
        is_recovered = all(math.isfinite(trial.recovery_seconds) for trial in self.trials)
        return is_recovered and not self.wrong and self.alerts.is_clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """When a new report was acknowledged and when its batch was closed, by `time.perf_counter`; inf: not in time.

    `failure` is the last response if one of them did not happen.
    """

    acknowledged_at: float = math.inf
    closed_at: float = math.inf
    failure: str = ""


class RecoveryProbe:
    """A run of one rank that sends a report whenever it is asked, and waits for its batch."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged: list[tuple[int, int, int]] = []

    def wait(self) -> Recovery:
        """Send a new report and wait until its batch is closed, or for 180 s."""
        step = len(self.acknowledged)
        run = f"/api/v1/runs/{PROJECT}/{PROBE.run(0)}"
        deadline = time.monotonic() + RECOVERY_SECONDS
        connection = Connection(self._url, timeout_seconds=ANSWER_SECONDS)
        body = PROBE.report(0, step=step, rank=0)
        with closing(connection):
            answer = _until_ok(lambda: connection.post(f"{run}/reports", body, content_type=wire.MSGPACK), deadline)
            if answer.status != OK:
                return Recovery(failure=f"not acknowledged: {answer.status} {answer.body[:300]!r}")
            acknowledged_at = time.perf_counter()
            self.acknowledged.append((0, step, 0))
            answer = _until_ok(lambda: connection.get(f"{run}/batches/{step}"), deadline)
            if answer.status != OK:
                failure = f"not closed: {answer.status} {answer.body[:300]!r}"
                return Recovery(acknowledged_at=acknowledged_at, failure=failure)
            return Recovery(acknowledged_at=acknowledged_at, closed_at=time.perf_counter())


def _until_ok(ask: Callable[[], Answer], deadline: float) -> Answer:
    """Ask until the response is 200 or the time is over; return the last response."""
    while (answer := ask()).status != OK and time.monotonic() < deadline:
        time.sleep(RETRY_SECONDS)
    return answer


def soak(target: Target, pager: WebhookServer, plan: SoakPlan) -> SoakResult:
    """Send reports and, in each round, cause every fault in random order; return what was found in the end."""
    chance, deployment = random.Random(plan.seed), target.deployment
    pace = Pace(seconds=LONGEST_SECONDS, per_second=plan.per_second)
    workload = plan.workload
    n_connections = workload.n_runs * workload.n_ranks
    senders = Senders(lambda: deployment.url, workload, n_connections=n_connections, pace=pace)
    probe = RecoveryProbe(deployment.url)
    senders.start()
    trials = []
    try:
        for name in _order(plan, chance):
            time.sleep(chance.uniform(*PAUSE_SECONDS))
            trials.append(_try(target, name, probe, seconds=chance.uniform(*target.faults[name].seconds)))
        _wait_for_drift(senders, workload)
    except BaseException:
        senders.abandon()
        raise
    senders.stop()
    sent, _ = senders.wait()
    assert not sent.failures, sent.failures[:3]
    probed = verify(deployment.url, PROBE, probe.acknowledged)
    assert not probed.lost + probed.duplicated, f"of the probe's reports: {probed}"
    return SoakResult(
        trials=tuple(trials),
        sent=sent,
        wrong=wrong_steps(deployment.url, workload, sent.acknowledged),
        alerts=check_alerts(deployment.url, pager, workload, sent.acknowledged),
    )


def variables_for(pager: WebhookServer) -> dict[str, str]:
    """Return the settings of the service for its webhook receiver."""
    return {"webhook_url": pager.url, "webhook_allow_hosts": "127.0.0.1"}


def _order(plan: SoakPlan, chance: random.Random) -> Iterator[str]:
    """Yield the faults of each round in random order, until the rounds or the time are over."""
    deadline = time.monotonic() + plan.seconds
    for _ in range(plan.n_rounds):
        if time.monotonic() > deadline:
            return
        yield from chance.sample(plan.faults, k=len(plan.faults))


def _try(target: Target, name: str, probe: RecoveryProbe, *, seconds: float) -> Trial:
    """Cause a fault for so long, and wait for the recovery."""
    began = time.perf_counter()
    with target.faults[name].block():
        time.sleep(seconds)
        ended = time.perf_counter()
    pids = target.deployment.pids()
    used, waited = cpu_seconds(pids), waited_seconds(pids)
    recovery = probe.wait()
    used, waited = cpu_seconds(pids) - used, waited_seconds(pids) - waited
    trial = Trial(
        fault=name,
        began=began,
        acknowledged_seconds=recovery.acknowledged_at - ended,
        recovery_seconds=recovery.closed_at - ended,
    )
    print(
        f"{name} for {ended - began:.1f} s: acknowledged again in {trial.acknowledged_seconds:.1f} s, closed in "
        f"{trial.recovery_seconds:.1f} s; its processes had {used:.1f} s of CPU time and waited {waited:.1f} s for it",
        recovery.failure,
        file=sys.stderr,
        flush=True,
    )
    return trial


def _wait_for_drift(senders: Senders, workload: Workload) -> None:
    """Continue until every run has drifted for long enough to fire: a soak without alerts would not test them."""
    assert workload.drift_from is not None
    needed = (workload.drift_from + 15) * workload.n_runs * workload.n_ranks
    deadline = time.monotonic() + DRIFT_SECONDS
    while senders.acknowledged < needed:
        assert time.monotonic() < deadline, f"only {senders.acknowledged} of {needed} reports acknowledged"
        time.sleep(0.1)


def main() -> None:
    """Run the soak, print the table, and fail if data was lost or repeated."""
    unwind_on_sigterm()
    given = _arguments()
    console = Console(width=160)
    if given.reports:
        pace = Pace(seconds=given.minutes * 60, per_second=given.per_second)
        endure(console, n_reports=given.reports, pace=pace, plot=given.plot)
        return
    make_target = fleet_target if given.fleet else embedded_target
    with (
        tempfile.TemporaryDirectory() as folder,
        WebhookServer() as pager,
        make_target(Path(folder), with_clock=given.clock, **variables_for(pager)) as target,
    ):
        wanted = [name for name in target.faults if any(part in name for part in given.faults.split(","))]
        plan = SoakPlan(
            faults=tuple(wanted),
            n_rounds=min(given.rounds, MAX_ROUNDS),
            seconds=given.minutes * 60,
            per_second=given.per_second or PER_SECOND,
            seed=given.seed,
        )
        result = soak(target, pager, plan)
        console.print(_table(result))
        console.print(_summary(result))
    raise SystemExit(0 if result.is_clean else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.load.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help=f"number of times of each fault, at most {MAX_ROUNDS}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="no further round begins after this time")
    pace = f"number of reports per second; without it {PER_SECOND:.0f}, with --reports as fast as acknowledged"
    parser.add_argument("--per-second", type=float, help=pace)
    parser.add_argument("--clock", action="store_true", help="jumps of the clock instead; needs libfaketime")
    parser.add_argument("--fleet", action="store_true", help="two replicas and two workers on PostgreSQL and Redis")
    parser.add_argument("--faults", default="", help="only faults whose names contain one of these, comma-separated")
    parser.add_argument("--reports", type=int, help="no faults: send so many small reports and watch the service")
    parser.add_argument("--plot", type=Path, help="write the plot of --reports to this file")
    return parser.parse_args()


def _table(result: SoakResult) -> Table:
    """Return one row per fault; a report counts for the fault that began last before its acknowledgement."""
    seconds = [f"{until} again s, {which}" for until in ("acknowledged", "closed") for which in ("median", "worst")]
    table = Table("fault", "times", "acknowledged", "lost", "doubled", *seconds, box=MARKDOWN)
    began = [trial.began for trial in result.trials]
    faults = [trial.fault for trial in result.trials]
    fault_of = {
        place: faults[max(bisect_right(began, at) - 1, 0)]
        for place, at in zip(result.sent.acknowledged, result.sent.acknowledged_at, strict=True)
    }
    acknowledged = Counter(fault_of.values())
    lost, doubled = _wrong_by_fault(result.wrong, fault_of)
    for name in sorted(set(faults)):
        trials = [trial for trial in result.trials if trial.fault == name]
        table.add_row(
            name,
            *(f"{n:,}" for n in (len(trials), acknowledged[name], lost[name], doubled[name])),
            *_median_and_worst([trial.acknowledged_seconds for trial in trials]),
            *_median_and_worst([trial.recovery_seconds for trial in trials]),
        )
    return table


def _median_and_worst(seconds: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"


def _wrong_by_fault(wrong: StepVerdicts, fault_of: dict[Place, str]) -> tuple[Counter[str], Counter[str]]:
    """Return the lost reports and the doubled sequences of each fault, by the step's first acknowledged rank."""
    lost: Counter[str] = Counter()
    doubled: Counter[str] = Counter()
    for (run, step), verdict in wrong.items():
        ranks = [(run, step, rank) for rank in range(WORKLOAD.n_ranks)]
        name = next((fault_of[place] for place in ranks if place in fault_of), "never acknowledged")
        lost[name] += verdict.lost
        doubled[name] += verdict.duplicated
    return lost, doubled


def _summary(result: SoakResult) -> str:
    sent, alerts = result.sent, result.alerts
    return (
        f"{len(sent.acknowledged):,} reports acknowledged, {sent.broken:,} connections broken, {sent.refused:,} "
        f"refused and sent again, {sent.duplicates:,} sent again and known; {_total(result.wrong)}; "
        f"{alerts.n_events} alert events, {alerts.repeated_events} repeated, {alerts.missing_events} missing; "
        f"{alerts.n_pages} pages, {alerts.repeated_pages} repeated, {alerts.missing_pages} missing; "
        f"fired: {', '.join(f'{rule} {n}' for rule, n in sorted(alerts.rules.items()))}; "
        f"load average {load_average()}"
    )


def _total(wrong: StepVerdicts) -> str:
    lost, doubled = (sum(getattr(one, name) for one in wrong.values()) for name in ("lost", "duplicated"))
    return f"lost {lost}, doubled {doubled}"


if __name__ == "__main__":
    main()
