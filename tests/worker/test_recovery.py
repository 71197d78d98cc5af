"""A restart at any moment changes no alert, for random messages in a random order; from where it reads again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from tests.domain.pipeline.closings import parse_rules
from tests.domain.trainer import Health, finished, made, report, stored
from tests.worker.watched_run import ORIGIN, WATCH_CONFIG, WatchedRun, finish
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon.domain.pipeline.publish import Frontier
from trmon.worker.recovery import PendingState
from trmon_client.core import wire

RULES = parse_rules(
    """
- {name: crashed, severity: page, summary: x, when: {state: crashed}}
- {name: corrupt, severity: page, summary: x, immune_steps: 0, for_steps: 2, clear_for_steps: 2,
   when: {signal: saturated_fraction, above: 0.001}}
- {name: any_update, severity: warn, summary: x, immune_steps: 2, reads: every_update, for_steps: 3,
   when: {signal: saturated_fraction, above: 0.001}}
- {name: high, severity: page, summary: x, immune_steps: 0, for_steps: 3, clear_for_steps: 2,
   when: {signal: grad_norm, above: 1, clear: 0.5}}
- {name: gone, severity: warn, summary: x, immune_steps: 0, for_steps: 2, when: {absent: grad_norm}}
- {name: grows, severity: warn, summary: x, immune_steps: 0,
   when: {growth: grad_norm, over: 5, above: 1.5, clear: 1.1}}
- {name: lasts, severity: warn, summary: x, immune_steps: 0, for_seconds: 25, when: {signal: mask_rate, above: 0.3}}
"""
)
NORMS: tuple[wire.JsonNumber, ...] = (0.2, 0.4, 0.9, 1.2, 3.0, "nan", "inf", None)
NO_GRACE_END = replace(WATCH_CONFIG, rules=lambda: RULES, grace_seconds=1e9)
"""The grace period never ends: a restart would extend it and change the result."""
STEPS, RANKS = 24, 2


def messages(rng: random.Random) -> Iterator[list[wire.Message]]:
    """Yield messages ten seconds apart: shuffled steps of two ranks, with crashes and new launches in between."""
    launch, health, late = 1, "healthy", list[wire.Message]()
    stated: tuple[tuple[int, int | None, int], ...] = ()
    for step in range(STEPS):
        if rng.random() < 0.2:
            health = "corrupt" if health == "healthy" else "healthy"
        given = {"launch": f"launch-{launch}", "world_size": RANKS}
        now = late + list(_step(step, health, stated, rng, **given))
        stated = ((step, None, 1), (step, 0, 1))
        rng.shuffle(now)
        n_late = rng.choice([0, 0, 0, 1, 2])
        now, late = now[n_late:], now[:n_late]
        yield now
        if rng.random() < 0.15:
            last = finished(*stated)
            ends = [finish(step, rank=rank, outcome="crashed", **given) for rank in range(RANKS)]
            yield [*late, *(replace_counts(end, last) for end in ends)]
            late, stated = [], ()
            for _ in range(rng.choice([1, 2])):
                launch += 1
                origin = {**ORIGIN, "launch": f"launch-{launch}", "sent_at": 6000.0 + launch}
                yield [wire.Start(**origin)]
                if rng.random() < 0.5:
                    yield [finish(step, outcome="crashed", launch=f"launch-{launch}", sent_at=6000.5 + launch)]


def _step(
    step: int, health: Health, stated: tuple[tuple[int, int | None, int], ...], rng: random.Random, **given: object
) -> Iterator[wire.Message]:
    for rank in range(RANKS):
        for update in (None, 0):
            content = made(health, seed=rank)
            scalars = {"grad_norm": rng.choice(NORMS)} if rng.random() < 0.3 else {}
            of = {"rank": rank, "update": update, "scalars": scalars, "content": content, **given}
            yield report(step, finished=finished(*stated), **of)
            if rng.random() < 0.1:
                yield report(step, chunk=1, **of)
        if rng.random() < 0.5:
            values = {"grad_norm": rng.choice(NORMS)}
            yield wire.Scalars(**{**ORIGIN, "rank": rank, **given}, sequence=step, step=step, values=values)


def replace_counts(end: wire.Finish, counts: list[wire.ChunkCount]) -> wire.Finish:
    """Return a Finish message that states the chunk counts of both updates of its step."""
    return structs.replace(end, finished=counts)


def alerts_after(arrivals: list[list[wire.Message]], *, restarts: dict[int, bool]) -> tuple[list[object], ...]:
    """Return the alerts, deliveries and open alerts.

    Args: restarts: before which arrivals, and whether the worker wrote checkpoints first.
    """
    watched = WatchedRun(watch_config=NO_GRACE_END)
    for i, now in enumerate(arrivals):
        if i in restarts:
            if restarts[i]:
                watched.scheduler.write_checkpoints()
            watched.restart()
        watched.receive(*now, at=10.0 * i)
    assert not watched.observer.failures
    delivered = [(d.episode, d.told_state.value, d.notification.summary) for d in watched.log.deliveries.values()]
    open_alerts = [(a.rule, a.state.value, a.attempt_id, a.step, a.update) for a in watched.log.open_alerts(1)]
    return sorted(watched.log.told()), sorted(delivered), sorted(open_alerts, key=str)


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_at_any_moment_changes_no_alert(seed: int) -> None:
    rng = random.Random(seed)
    arrivals = list(messages(rng))
    expected = alerts_after(arrivals, restarts={})
    assert expected[1], "some alert is delivered"
    for share in (0.05, 0.3, 1.0):
        restarts = {i: rng.random() < 0.5 for i in range(1, len(arrivals)) if rng.random() < share}
        assert alerts_after(arrivals, restarts=restarts) == expected, restarts


READ = Frontier(report_id=90, notice_id=50)


def apply(pending: PendingState, message: wire.Message, *, id_: int, attempt_id: int = 1) -> None:
    pending.apply_notice(StoredNotice(id=id_, run_id=1, attempt_id=attempt_id, received_at=0.0, message=message))


def scalars(step: int) -> wire.Scalars:
    return wire.Scalars(attempt="a", launch="l", sequence=0, step=step, values={"lr": 1.0})


def finished_notice(rank: int = 0) -> wire.Finish:
    return wire.Finish(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def start(rank: int = 0) -> wire.Start:
    return wire.Start(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def test_without_pending_work_a_restart_continues_at_the_frontier() -> None:
    assert PendingState().restart_frontier(READ) == READ
    assert PendingState().reread_notices_after(READ, newest=BatchKey(1, 7, None)) == READ.notice_id


def test_reports_are_read_again_from_the_oldest_of_an_open_batch() -> None:
    pending = PendingState()
    for id_ in (33, 31):
        pending.assembly.add_report(stored(report(5, rank=id_ % 2, world_size=2), id_=id_))
    assert pending.restart_frontier(READ) == Frontier(report_id=30, notice_id=50)


def test_notices_are_read_again_from_the_oldest_pending_scalars() -> None:
    pending = PendingState()
    for id_, step in ((20, 4), (24, 6)):
        apply(pending, scalars(step), id_=id_)
    assert pending.reread_notices_after(READ, newest=None) == 19
    pending.forget_scalars(BatchKey(1, 5, None))
    assert pending.reread_notices_after(READ, newest=None) == 23


def test_a_finish_is_read_again_until_its_rank_starts_again_or_its_attempt_ends() -> None:
    pending = PendingState()
    for rank in (0, 1):
        apply(pending, finished_notice(rank), id_=10 + rank)
    newest = BatchKey(1, 7, None)
    assert pending.reread_notices_after(READ, newest=newest) == 9
    apply(pending, start(0), id_=12)
    assert pending.reread_notices_after(READ, newest=newest) == 10
    assert pending.reread_notices_after(READ, newest=BatchKey(2, 0, None)) == READ.notice_id
