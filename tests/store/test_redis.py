"""What processes share through Redis: notices of commits, which never wait, and buckets of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import redis
from structlog.testing import CapturingLogger

from tests.fixtures.redis import Redis
from tests.fixtures.waiting import eventually
from trmon.domain.errors import NotReady
from trmon.store import redis as pubsub_module
from trmon.store.redis import MAX_RUNS, CommitNotice, PubSub, SharedBuckets

pytestmark = pytest.mark.server("redis-server")

EVERYTHING = CommitNotice(missed=True)


@dataclass
class Process:
    """The PubSub of a process, with the notices it received and the failures it counted."""

    pubsub: PubSub
    received: list[CommitNotice] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


Join = Callable[..., Process]


@pytest.fixture
def server() -> Iterator[Redis]:
    """A running server, which some tests stop."""
    with Redis() as server:
        yield server


@pytest.fixture
def join() -> Iterator[Join]:
    """Return a function that starts processes; all end with the test."""
    processes: list[Process] = []

    def start(url: str, *, on_notice: Callable[[CommitNotice], None] | None = None) -> Process:
        received: list[CommitNotice] = []
        failures: Counter[str] = Counter()
        pubsub = PubSub(url, on_notice=on_notice or received.append, on_failure=lambda what: failures.update([what]))
        processes.append(Process(pubsub, received, failures))
        pubsub.start()
        return processes[-1]

    yield start
    for process in processes:
        process.pubsub.close()


@pytest.fixture
def two(server: Redis, join: Join) -> tuple[Process, Process]:
    both = join(server.url), join(server.url)
    for process in both:
        eventually(lambda process=process: process.received == [EVERYTHING])
    return both


def notice(*touched: int) -> CommitNotice:
    return CommitNotice(touched=frozenset(touched))


def test_a_notice_reaches_the_other_process_and_not_its_sender(two: tuple[Process, Process]) -> None:
    one, other = two
    sent = CommitNotice(touched=frozenset({1, 2}), edited=frozenset({2}), has_deliveries=True)
    one.pubsub.publish(sent)
    eventually(lambda: other.received[1:] == [sent])
    other.pubsub.publish(notice(3))
    eventually(lambda: one.received[1:] == [notice(3)])


def test_notices_published_while_redis_is_down_arrive_or_are_reported_as_missed(
    server: Redis, two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(pubsub_module, "_log", log)
    one, other = two
    server.kill()
    eventually(lambda: not one.pubsub.is_connected and not other.pubsub.is_connected)
    for run in range(100):
        one.pubsub.publish(notice(run))
    eventually(lambda: one.failures["publish"] > 0)
    eventually(lambda: all(process.failures["listen"] >= 3 for process in two))
    # From here on the process must poll.
    eventually(lambda: other.received[1:] == [EVERYTHING])
    server.start()
    eventually(lambda: one.pubsub.is_connected and other.pubsub.is_connected)
    # A process that reconnects after a notice was published is told that it missed some.
    eventually(lambda: EVERYTHING in other.received[2:])
    one.pubsub.publish(notice(1000))
    eventually(lambda: 1000 in other.received[-1].touched)
    assert Counter(call.args for call in log.calls) == {("redis_away",): 2, ("redis_back",): 2}


def test_a_redis_that_hangs_is_detected_and_delays_no_caller(server: Redis, two: tuple[Process, Process]) -> None:
    one, other = two
    server.hold()
    for run in range(1_000):  # each would wait for half a second if it asked Redis
        one.pubsub.publish(notice(run))
    assert one.pubsub.is_connected, "publishing took longer than the detection"
    eventually(lambda: not one.pubsub.is_connected and not other.pubsub.is_connected)
    eventually(lambda: other.received[1:] == [EVERYTHING])
    server.go_on()
    eventually(lambda: one.pubsub.is_connected and other.pubsub.is_connected)
    one.pubsub.publish(notice(7))
    eventually(lambda: len(other.received) > 2 and (7 in other.received[-1].touched or other.received[-1].missed))


def test_a_redis_that_starts_later_is_connected_then(server: Redis, join: Join) -> None:
    server.kill()
    process = join(server.url)
    eventually(lambda: process.failures["listen"] > 0)
    assert (process.pubsub.is_connected, process.received) == (False, [])
    server.start()
    eventually(lambda: process.pubsub.is_connected)
    eventually(lambda: process.received == [EVERYTHING])


def test_an_unreadable_message_is_counted(server: Redis, two: tuple[Process, Process]) -> None:
    one, _ = two
    with redis.Redis.from_url(server.url) as client:
        client.publish("trmon:0:news", b"nonsense")
    eventually(lambda: one.failures["read"] == 1)
    assert one.pubsub.is_connected


def test_deployments_in_different_databases_of_a_redis_are_separate(server: Redis, join: Join) -> None:
    one, other, witness = join(server.url), join(server.url.replace("/0", "/1")), join(server.url)
    for process in (one, other, witness):
        eventually(lambda process=process: process.pubsub.is_connected)
    one.pubsub.publish(notice(1))
    eventually(lambda: notice(1) in witness.received)
    assert other.received == [EVERYTHING]


def test_an_invalid_url_is_refused() -> None:
    with pytest.raises(NotReady, match="TRMON_REDIS_URL"):
        PubSub("memcached://here", on_notice=print, on_failure=print)


@pytest.mark.parametrize(
    ("earlier", "later", "both"),
    [
        pytest.param(notice(1), notice(2), notice(1, 2), id="runs are merged"),
        pytest.param(
            notice(1),
            CommitNotice(has_deliveries=True),
            CommitNotice(touched=frozenset({1}), has_deliveries=True),
            id="so are deliveries",
        ),
        pytest.param(EVERYTHING, notice(1), EVERYTHING, id="everything stays everything"),
        pytest.param(notice(*range(MAX_RUNS)), notice(MAX_RUNS), EVERYTHING, id="too many runs are everything"),
    ],
)
def test_pending_notices_are_merged(earlier: CommitNotice, later: CommitNotice, both: CommitNotice) -> None:
    assert earlier.merge(later) == both


def test_a_process_that_fails_to_handle_a_notice_gets_the_next_ones(server: Redis, join: Join) -> None:
    received: list[CommitNotice] = []

    def fail_twice(notice: CommitNotice) -> None:
        received.append(notice)
        if len(received) < 3:
            raise ValueError("cannot handle it")

    process = join(server.url, on_notice=fail_twice)
    eventually(lambda: received == [EVERYTHING])
    server.kill()
    eventually(lambda: received == [EVERYTHING] * 2)
    server.start()
    eventually(lambda: received == [EVERYTHING] * 3)
    assert process.failures["handle"] == 2


SLOW = 1e-6
"""Tokens per second: too few to add one during a test."""


@pytest.fixture
def replicas(server: Redis) -> Iterator[tuple[SharedBuckets, SharedBuckets]]:
    """Two replicas on one Redis, with buckets of ten tokens that hardly refill."""
    both = [SharedBuckets(server.url, per_second=SLOW, burst=10) for _ in range(2)]
    yield both[0], both[1]
    for buckets in both:
        buckets.close()


def test_replicas_share_a_bucket(replicas: tuple[SharedBuckets, SharedBuckets]) -> None:
    one, other = replicas
    assert one.spend({"ana": 3})["ana"] == pytest.approx(7, abs=0.01)
    left = other.spend({"ana": 4, "bob": 1})
    assert (left["ana"], left["bob"]) == (pytest.approx(3, abs=0.01), pytest.approx(9, abs=0.01))
    assert one.spend({"ana": 0})["ana"] == pytest.approx(3, abs=0.01)


def test_the_debt_of_a_bucket_is_at_most_one_burst(replicas: tuple[SharedBuckets, SharedBuckets]) -> None:
    assert replicas[0].spend({"ana": 1000})["ana"] == pytest.approx(-10, abs=0.01)


def test_a_full_bucket_expires(server: Redis) -> None:
    buckets = SharedBuckets(server.url, per_second=20.0, burst=10)
    assert buckets.spend({"ana": 10})["ana"] < 10
    eventually(lambda: buckets.spend({"ana": 0})["ana"] == 10)
    with redis.Redis.from_url(server.url) as client:
        eventually(lambda: client.keys() == [])
    buckets.close()


def test_an_unreachable_or_hanging_redis_fails_at_once(server: Redis) -> None:
    buckets = SharedBuckets(server.url, per_second=1.0, burst=10)
    buckets.spend({"ana": 1})
    server.hold()
    with pytest.raises(NotReady, match="redis"):
        buckets.spend({"ana": 1})
    server.go_on()
    server.kill()
    with pytest.raises(NotReady, match="redis"):
        buckets.spend({"ana": 1})
    server.start()
    assert buckets.spend({"ana": 1})["ana"] == pytest.approx(9, abs=1)
    buckets.close()
