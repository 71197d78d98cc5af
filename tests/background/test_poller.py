"""The poller: it looks when its time has come, sooner when woken, less often while it is told what comes."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Semaphore

import pytest

from trmon.background import poller
from trmon.background.poller import Poller

HOUR_SECONDS = 3600.0
SHORT_SECONDS = 0.02
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 0.3


class Looked:
    """A poller that looks often, and what it did; a test says whether it is told what comes, and whether looks fail."""

    def __init__(self) -> None:
        self.is_told = False
        self.is_failing = False
        self.times = Semaphore(0)
        self.poller = Poller("test", self._look, every_seconds=SHORT_SECONDS, pause_seconds=0.0)
        self.poller.rely_on(lambda: self.is_told)

    def _look(self) -> None:
        self.times.release()
        if self.is_failing:
            raise RuntimeError("nothing to be seen")

    def again(self, *, within_seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for a look that was not counted yet."""
        return self.times.acquire(timeout=within_seconds)

    def rests(self) -> bool:
        """Wait until it looks no more by itself; a look that was under way is counted."""
        while self.again(within_seconds=MOMENT_SECONDS):
            pass
        return not self.again(within_seconds=MOMENT_SECONDS)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    """A poller that runs; while it is told what comes, it would not look for an hour."""
    monkeypatch.setattr(poller, "TOLD_POLL_SECONDS", HOUR_SECONDS)
    looked = Looked()
    looked.poller.start()
    yield looked
    looked.poller.close()


def test_it_looks_by_itself_until_it_is_told_what_comes(looked: Looked) -> None:
    assert all(looked.again() for _ in range(3))
    looked.is_told = True
    assert looked.rests()


def test_told_it_looks_when_it_is_woken_and_by_itself_again_once_nobody_tells_it(looked: Looked) -> None:
    looked.is_told = True
    assert looked.rests()
    looked.poller.wake()
    assert looked.again()
    assert looked.rests()
    looked.is_told = False
    looked.poller.wake()
    assert all(looked.again() for _ in range(3))


def test_after_a_look_that_failed_it_does_not_wait_to_be_told(looked: Looked) -> None:
    looked.is_failing = looked.is_told = True
    assert all(looked.again() for _ in range(3))
    looked.is_failing = False
    assert looked.rests()
