"""The bell: others hear what was committed, nobody waits for it, and what Redis misses is heard of later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import redis
from structlog.testing import CapturingLogger

from tests.fixtures.redis import Redis
from tests.fixtures.waiting import eventually
from trmon.domain.model.errors import NotReady
from trmon.store.redis import pubsub
from trmon.store.redis.commit_notice import MAX_RUNS, CommitNotice
from trmon.store.redis.pubsub import PubSub

pytestmark = pytest.mark.server("redis-server")

EVERYTHING = CommitNotice(missed=True)


@dataclass
class Process:
    """A process' bell, and what it heard and counted."""

    bell: PubSub
    heard: list[CommitNotice] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


Join = Callable[[str], Process]


@pytest.fixture
def join() -> Iterator[Join]:
    """Return a function that starts processes; all end with the test."""
    processes: list[Process] = []

    def start(url: str) -> Process:
        heard: list[CommitNotice] = []
        failures: Counter[str] = Counter()
        bell = PubSub(url, heard=heard.append, failed=lambda what: failures.update([what]))
        processes.append(Process(bell, heard, failures))
        bell.start()
        return processes[-1]

    yield start
    for process in processes:
        process.bell.close()


@pytest.fixture
def two(server: Redis, join: Join) -> tuple[Process, Process]:
    """Two processes that hear each other."""
    both = join(server.url), join(server.url)
    for process in both:
        eventually(lambda process=process: process.heard == [EVERYTHING])
    return both


def news(*touched: int) -> CommitNotice:
    return CommitNotice(touched=frozenset(touched))


def test_others_hear_what_one_rings_and_he_himself_does_not(two: tuple[Process, Process]) -> None:
    one, other = two
    said = CommitNotice(touched=frozenset({1, 2}), edited=frozenset({2}), addressed=True)
    one.bell.ring(said)
    eventually(lambda: other.heard[1:] == [said])
    other.bell.ring(news(3))
    eventually(lambda: one.heard[1:] == [news(3)])


def test_a_redis_that_is_killed_delays_what_rings_and_loses_none_of_it(
    server: Redis, two: tuple[Process, Process]
) -> None:
    one, other = two
    server.kill()
    eventually(lambda: not one.bell.up and not other.bell.up)
    for run in range(100):
        one.bell.ring(news(run))
    eventually(lambda: one.failures["publish"] > 0 and other.failures["listen"] > 0)
    # From here on he must look by himself.
    eventually(lambda: other.heard[1:] == [EVERYTHING])
    server.start()
    eventually(lambda: one.bell.up and other.bell.up)
    # Whoever was not back yet when it rang has been told to look at everything.
    eventually(lambda: EVERYTHING in other.heard[2:])
    one.bell.ring(news(1000))
    eventually(lambda: 1000 in other.heard[-1].touched)


def test_an_outage_is_logged_once_and_its_end_too(
    server: Redis, two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(pubsub, "_log", log)
    server.kill()
    eventually(lambda: all(process.failures["listen"] >= 3 for process in two))
    server.start()
    eventually(lambda: len(log.calls) >= 4)
    assert Counter(call.args for call in log.calls) == {("redis_away",): 2, ("redis_back",): 2}


def test_a_redis_that_hangs_is_noticed_and_holds_nobody_up(server: Redis, two: tuple[Process, Process]) -> None:
    one, other = two
    server.hold()
    for run in range(20_000):
        one.bell.ring(news(run))
    assert one.bell.up, "ringing took longer than it takes to notice"
    eventually(lambda: not one.bell.up and not other.bell.up)
    eventually(lambda: other.heard[1:] == [EVERYTHING])
    server.go_on()
    eventually(lambda: one.bell.up and other.bell.up)
    one.bell.ring(news(7))
    eventually(lambda: len(other.heard) > 2 and (7 in other.heard[-1].touched or other.heard[-1].missed))


def test_without_a_redis_at_the_start_it_is_found_when_it_comes(server: Redis, join: Join) -> None:
    server.kill()
    process = join(server.url)
    eventually(lambda: process.failures["listen"] > 0)
    assert (process.bell.up, process.heard) == (False, [])
    server.start()
    eventually(lambda: process.bell.up)
    assert process.heard == [EVERYTHING]


def test_what_nobody_can_read_is_counted(server: Redis, two: tuple[Process, Process]) -> None:
    one, _ = two
    with redis.Redis.from_url(server.url) as client:
        client.publish("trmon:0:news", b"nonsense")
    eventually(lambda: one.failures["read"] == 1)
    assert one.bell.up


def test_deployments_in_other_databases_of_one_redis_do_not_hear_each_other(server: Redis, join: Join) -> None:
    one, other, witness = join(server.url), join(server.url.replace("/0", "/1")), join(server.url)
    for process in (one, other, witness):
        eventually(lambda process=process: process.bell.up)
    one.bell.ring(news(1))
    eventually(lambda: news(1) in witness.heard)
    assert other.heard == [EVERYTHING]


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(NotReady, match="TRMON_REDIS_URL"):
        PubSub("memcached://here", heard=print, failed=print)


@pytest.mark.parametrize(
    ("earlier", "later", "both"),
    [
        pytest.param(news(1), news(2), news(1, 2), id="runs are added up"),
        pytest.param(
            news(1),
            CommitNotice(addressed=True),
            CommitNotice(touched=frozenset({1}), addressed=True),
            id="so is the rest",
        ),
        pytest.param(EVERYTHING, news(1), EVERYTHING, id="everything stays everything"),
        pytest.param(news(*range(MAX_RUNS)), news(MAX_RUNS), EVERYTHING, id="too many runs are everything"),
    ],
)
def test_news_that_wait_become_one(earlier: CommitNotice, later: CommitNotice, both: CommitNotice) -> None:
    assert earlier.and_then(later) == both


def test_who_fails_at_what_he_hears_goes_on_hearing(server: Redis, join: Join) -> None:
    heard: list[CommitNotice] = []
    failures: Counter[str] = Counter()

    def fails_first(news: CommitNotice) -> None:
        heard.append(news)
        if len(heard) < 3:
            raise ValueError("cannot take it")

    bell = PubSub(server.url, heard=fails_first, failed=lambda what: failures.update([what]))
    bell.start()
    try:
        eventually(lambda: heard == [EVERYTHING])
        server.kill()
        eventually(lambda: heard == [EVERYTHING] * 2)
        server.start()
        eventually(lambda: heard == [EVERYTHING] * 3)
    finally:
        bell.close()
    assert failures["heard"] == 2
