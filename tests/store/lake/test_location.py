"""Tests that a lake which fails or hangs is asked seldom, and that the answer says what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.fixtures.waiting import eventually
from trmon.domain.errors import LakeUnavailable, Overloaded
from trmon.store.lake.location import FIRST_PAUSE_SECONDS, MAX_READS, LakeAccess, brief_error


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(access: LakeAccess) -> str:
    """Return what is said of a read that fails."""
    with pytest.raises(LakeUnavailable) as failure, access.read():
        raise OSError("Connection refused")
    return str(failure.value)


def test_a_failed_read_says_what_to_check() -> None:
    assert fail(LakeAccess("s3://b/p", monotonic=Clock())) == (
        "the run is in the lake s3://b/p, which cannot be read (Connection refused); check TRMON_LAKE_URL, its "
        "credentials and its network; runs in the database are not affected"
    )


def test_after_a_failure_reads_are_refused_for_a_while_that_doubles() -> None:
    clock = Clock()
    access = LakeAccess("s3://b/p", monotonic=clock)
    for pause_seconds in (FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS):
        fail(access)
        clock.now += pause_seconds - 0.1
        with pytest.raises(LakeUnavailable, match="Connection refused"), access.read():
            pytest.fail("the lake was asked again")
        clock.now += 0.2


def test_a_read_that_succeeds_ends_the_pauses() -> None:
    clock = Clock()
    access = LakeAccess("s3://b/p", monotonic=clock)
    fail(access)
    clock.now += FIRST_PAUSE_SECONDS
    with access.read():
        pass
    fail(access)
    clock.now += FIRST_PAUSE_SECONDS
    with access.read():
        pass


def test_an_error_that_is_not_of_the_lake_passes_and_refuses_nothing() -> None:
    access = LakeAccess("s3://b/p", monotonic=Clock())
    with pytest.raises(ZeroDivisionError), access.read():
        raise ZeroDivisionError
    with access.read():
        pass


def test_a_slow_lake_holds_few_threads() -> None:
    access, go_on = LakeAccess("s3://b/p"), Event()

    def read(_: int) -> bool:
        try:
            with access.read():
                return go_on.wait(30)
        except Overloaded:
            return False

    n_threads = MAX_READS + 5
    with ThreadPoolExecutor(n_threads) as pool:
        reads = [pool.submit(read, i) for i in range(n_threads)]
        eventually(lambda: sum(future.done() for future in reads), lambda n_refused: n_refused == 5)
        go_on.set()
        assert sum(future.result(30) for future in reads) == MAX_READS


def test_the_tree_that_deltalake_draws_is_one_line() -> None:
    assert brief_error(OSError("Generic S3 error\n   \x1b[31m↳\x1b[0m refused")) == "Generic S3 error refused"
    assert len(brief_error(OSError("x" * 1000))) == 203
