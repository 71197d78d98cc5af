"""ServiceProxy: commits, views and counts over the channel, and the limit on updates in flight."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from tests.fixtures.views import view_of
from tests.store.builders import batch, batch_key
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.fleet.views import RunViewCache
from trmon.worker.channel import MAX_UNANSWERED, Channel, CommitRequest, CommitResult, RoundResult, ServiceProxy
from trmon.worker.pass_changes import PassTally


@pytest.fixture
def ends() -> Iterator[tuple[ServiceProxy, Channel]]:
    """A proxy, and the service's end of its channel."""
    theirs, ours = (Channel(end.detach()) for end in socket.socketpair())
    yield ServiceProxy(theirs, RunViewCache()), ours
    theirs.close()
    ours.close()


def update_of(run_id: int) -> RunUpdate:
    return RunUpdate(run_id=run_id, frontier=Frontier(report_id=7))


def test_a_future_ends_with_the_services_answer_for_its_update(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    (first,) = service_proxy.commit([update_of(1)])
    second, third = service_proxy.commit([update_of(2), update_of(3)])
    requests = [service.receive() for _ in range(2)]
    assert [(type(message), message.updates) for message in requests] == [
        (CommitRequest, (update_of(1),)),
        (CommitRequest, (update_of(2), update_of(3))),
    ]
    service_proxy.complete(CommitResult(requests[1].number, (None, NotReady("4096 operations wait for the disk"))))
    assert (first.done(), second.result(0)) == (False, None)
    with pytest.raises(NotReady, match="wait for the disk"):
        third.result(0)
    service_proxy.complete(CommitResult(requests[0].number, (None,)))
    assert first.result(0) is None


def test_no_request_is_sent_for_no_updates(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    assert service_proxy.commit([]) == []
    service_proxy.send_round_result()
    assert isinstance(service.receive(), RoundResult)


def test_counts_are_sent_once(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    service_proxy.pass_committed(PassTally(mismatches=3))
    service_proxy.pass_failed(OSError("unreadable"))
    service_proxy.remove(4)
    service_proxy.send_round_result()
    service_proxy.send_round_result()
    assert service.receive() == RoundResult((), {}, (4,), (PassTally(mismatches=3),), ("OSError('unreadable')",))
    assert service.receive() == RoundResult((), {}, (), (), ())


def test_a_committed_row_is_not_sent_again_with_its_view(ends: tuple[ServiceProxy, Channel]) -> None:
    service_proxy, service = ends
    written, former = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (4, 3))
    service_proxy.commit([RunUpdate(run_id=1, frontier=Frontier(), batches=(former, written))])
    service_proxy.put(view_of(1, row=written))
    service_proxy.put(view_of(2, row=former))
    service_proxy.send_round_result()
    service_proxy.put(view_of(1, row=written))
    service_proxy.send_round_result()
    service.receive()
    assert service.receive() == RoundResult((view_of(1), view_of(2, row=former)), {1: written.key}, (), (), ())
    assert service.receive() == RoundResult((view_of(1, row=written),), {}, (), (), ())


def test_a_row_of_an_earlier_update_is_sent_again(ends: tuple[ServiceProxy, Channel]) -> None:
    """A round may fail before its views are sent; the service remembers only the last update of each run."""
    service_proxy, service = ends
    former, last = (batch(batch_key(1, step), run_id=1, ordinal=step) for step in (3, 4))
    for row in (former, last):
        service_proxy.commit([RunUpdate(run_id=1, frontier=Frontier(), batches=(row,))])
        service.receive()
    service_proxy.put(view_of(1, row=former))
    service_proxy.send_round_result()
    assert service.receive() == RoundResult((view_of(1, row=former),), {}, (), (), ())


def test_the_number_of_updates_in_flight_is_limited(ends: tuple[ServiceProxy, Channel]) -> None:
    """A service that answers must never block on a worker that does not read."""
    service_proxy, service = ends

    def commit_all() -> None:
        for run_id in range(MAX_UNANSWERED + 1):
            service_proxy.commit([update_of(run_id)])

    committing = Thread(target=commit_all)
    committing.start()
    requests = [service.receive() for _ in range(MAX_UNANSWERED)]
    committing.join(0.2)
    assert committing.is_alive()
    service_proxy.complete(CommitResult(requests[0].number, (None,)))
    committing.join(10)
    assert service.receive().updates == (update_of(MAX_UNANSWERED),)
