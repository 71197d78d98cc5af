"""What stands for the service in the worker's process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread

import pytest

from tests.domain.memory_log import MemoryLog
from tests.store.builders import batch, batch_key
from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.errors import NotReady
from trmon.domain.policies.policy_version import default_version
from trmon.domain.state.run_update import Frontier, RunUpdate
from trmon.hosts.subprocess.channel import Channel, CommitRequest, CommitResult, RoundResult
from trmon.hosts.subprocess.service_proxy import MAX_UNANSWERED, ServiceProxy
from trmon.runner.pass_changes import PassTally
from trmon.views.run_view_cache import RunView, RunViewCache


@pytest.fixture
def ends() -> Iterator[tuple[ServiceProxy, Channel]]:
    """An office, and the service's end of its line."""
    theirs, ours = (Channel(end.detach()) for end in socket.socketpair())
    yield ServiceProxy(theirs, RunViewCache()), ours
    theirs.close()
    ours.close()


def outcome(run_id: int) -> RunUpdate:
    return RunUpdate(run_id=run_id, frontier=Frontier(report_id=7))


def test_an_outcome_is_written_once_the_service_says_so(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    (first,) = service_proxy.commit([outcome(1)])
    second, third = service_proxy.commit([outcome(2), outcome(3)])
    asked = [service.receive() for _ in range(2)]
    assert [(type(message), message.outcomes) for message in asked] == [
        (CommitRequest, (outcome(1),)),
        (CommitRequest, (outcome(2), outcome(3))),
    ]
    service_proxy.answered(CommitResult(asked[1].number, (None, "4096 operations wait for the disk")))
    assert (first.done(), second.result(0)) == (False, None)
    with pytest.raises(NotReady, match="wait for the disk"):
        third.result(0)
    service_proxy.answered(CommitResult(asked[0].number, (None,)))
    assert first.result(0) is None


def test_nothing_is_no_errand(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    assert service_proxy.commit([]) == []
    service_proxy.listen()
    assert isinstance(service.receive(), RoundResult)


def test_what_a_round_counted_is_said_once(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    service_proxy.passed(PassTally(mismatches=3))
    service_proxy.failed(OSError("unreadable"))
    service_proxy.drop(4)
    service_proxy.listen()
    service_proxy.listen()
    assert service.receive() == RoundResult((), {}, (4,), (PassTally(mismatches=3),), ("OSError('unreadable')",))
    assert service.receive() == RoundResult((), {}, (), (), ())


def test_a_row_that_was_sent_to_be_written_is_not_sent_to_be_shown(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    written, former = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (4, 3))
    service_proxy.commit([RunUpdate(run_id=1, frontier=Frontier(), batches=(former, written))])
    service_proxy.show(view(1, row=written))
    service_proxy.show(view(2, row=former))
    service_proxy.listen()
    service_proxy.show(view(1, row=written))
    service_proxy.listen()
    service.receive()
    assert service.receive() == RoundResult((view(1, row=None), view(2, row=former)), {1: written.key}, (), (), ())
    assert service.receive() == RoundResult((view(1, row=written),), {}, (), (), ())


def test_a_row_of_an_earlier_outcome_is_sent_again(ends: tuple[ServiceProxy, Channel]) -> None:
    """Rounds may fail before they are shown; the service remembers the last outcome of each run."""
    service_proxy, service = ends
    former, last = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (3, 4))
    for row in (former, last):
        service_proxy.commit([RunUpdate(run_id=1, frontier=Frontier(), batches=(row,))])
        service.receive()
    service_proxy.show(view(1, row=former))
    service_proxy.listen()
    assert service.receive() == RoundResult((view(1, row=former),), {}, (), (), ())


def view(run_id: int, *, row: BatchRow | None) -> RunView:
    run = replace(MemoryLog().stored_run, id=run_id)
    return RunView(
        run=run, row=row, policy=default_version(now=0.0), alerts=(), expected_step_seconds=None, updated_at=0.0
    )


def test_only_so_many_outcomes_are_under_way(ends: tuple[ServiceProxy, Channel]) -> None:
    """So a service that answers never waits for a worker that does not take its answers."""
    service_proxy, service = ends

    def write() -> None:
        for run_id in range(MAX_UNANSWERED + 1):
            service_proxy.commit([outcome(run_id)])

    writing = Thread(target=write)
    writing.start()
    asked = [service.receive() for _ in range(MAX_UNANSWERED)]
    writing.join(0.2)
    assert writing.is_alive()
    service_proxy.answered(CommitResult(asked[0].number, (None,)))
    writing.join(10)
    assert service.receive().outcomes == (outcome(MAX_UNANSWERED),)
