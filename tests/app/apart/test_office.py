"""What stands for the service in the worker's process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from trmon.app.apart.line import Line, Seen, Write, Written
from trmon.app.apart.office import MAX_UNANSWERED, Office
from trmon.app.live import Live
from trmon.app.worker.ledger import Tally
from trmon.domain.errors import NotReady
from trmon.domain.outcome import Frontier, Outcome


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
    assert service.receive() == Seen((), (4,), (Tally(mismatches=3),), ("OSError('unreadable')",))
    assert service.receive() == Seen((), (), (), ())


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
