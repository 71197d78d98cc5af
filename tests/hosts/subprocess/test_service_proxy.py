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
from trmon.domain.state.run_update import Frontier, Outcome
from trmon.hosts.subprocess.channel import Line, Seen, Write, Written
from trmon.hosts.subprocess.service_proxy import MAX_UNANSWERED, Office
from trmon.runner.pass_changes import Tally
from trmon.views.run_view_cache import Live, RunView


@pytest.fixture
def ends() -> Iterator[tuple[Office, Line]]:
    """An office, and the service's end of its line."""
    theirs, ours = (Line(end.detach()) for end in socket.socketpair())
    yield Office(theirs, Live()), ours
    theirs.close()
    ours.close()


def outcome(run_id: int) -> Outcome:
    return Outcome(run_id=run_id, frontier=Frontier(report_id=7))


def test_an_outcome_is_written_once_the_service_says_so(ends: tuple[Office, Line]) -> None:
    office, service = ends
    (first,) = office.commit([outcome(1)])
    second, third = office.commit([outcome(2), outcome(3)])
    asked = [service.receive() for _ in range(2)]
    assert [(type(message), message.outcomes) for message in asked] == [
        (Write, (outcome(1),)),
        (Write, (outcome(2), outcome(3))),
    ]
    office.answered(Written(asked[1].number, (None, "4096 operations wait for the disk")))
    assert (first.done(), second.result(0)) == (False, None)
    with pytest.raises(NotReady, match="wait for the disk"):
        third.result(0)
    office.answered(Written(asked[0].number, (None,)))
    assert first.result(0) is None


def test_nothing_is_no_errand(ends: tuple[Office, Line]) -> None:
    office, service = ends
    assert office.commit([]) == []
    office.listen()
    assert isinstance(service.receive(), Seen)


def test_what_a_round_counted_is_said_once(ends: tuple[Office, Line]) -> None:
    office, service = ends
    office.passed(Tally(mismatches=3))
    office.failed(OSError("unreadable"))
    office.drop(4)
    office.listen()
    office.listen()
    assert service.receive() == Seen((), {}, (4,), (Tally(mismatches=3),), ("OSError('unreadable')",))
    assert service.receive() == Seen((), {}, (), (), ())


def test_a_row_that_was_sent_to_be_written_is_not_sent_to_be_shown(ends: tuple[Office, Line]) -> None:
    office, service = ends
    written, former = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (4, 3))
    office.commit([Outcome(run_id=1, frontier=Frontier(), batches=(former, written))])
    office.show(view(1, row=written))
    office.show(view(2, row=former))
    office.listen()
    office.show(view(1, row=written))
    office.listen()
    service.receive()
    assert service.receive() == Seen((view(1, row=None), view(2, row=former)), {1: written.key}, (), (), ())
    assert service.receive() == Seen((view(1, row=written),), {}, (), (), ())


def test_a_row_of_an_earlier_outcome_is_sent_again(ends: tuple[Office, Line]) -> None:
    """Rounds may fail before they are shown; the service remembers the last outcome of each run."""
    office, service = ends
    former, last = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (3, 4))
    for row in (former, last):
        office.commit([Outcome(run_id=1, frontier=Frontier(), batches=(row,))])
        service.receive()
    office.show(view(1, row=former))
    office.listen()
    assert service.receive() == Seen((view(1, row=former),), {}, (), (), ())


def view(run_id: int, *, row: BatchRow | None) -> RunView:
    run = replace(MemoryLog().stored_run, id=run_id)
    return RunView(
        run=run, row=row, policy=default_version(now=0.0), alerts=(), expected_step_seconds=None, updated_at=0.0
    )


def test_only_so_many_outcomes_are_under_way(ends: tuple[Office, Line]) -> None:
    """So a service that answers never waits for a worker that does not take its answers."""
    office, service = ends

    def write() -> None:
        for run_id in range(MAX_UNANSWERED + 1):
            office.commit([outcome(run_id)])

    writing = Thread(target=write)
    writing.start()
    asked = [service.receive() for _ in range(MAX_UNANSWERED)]
    writing.join(0.2)
    assert writing.is_alive()
    office.answered(Written(asked[0].number, (None,)))
    writing.join(10)
    assert service.receive().outcomes == (outcome(MAX_UNANSWERED),)
