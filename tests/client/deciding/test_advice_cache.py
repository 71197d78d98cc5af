"""How long advice holds, and in a trainer whose service has gone away."""

from __future__ import annotations

from pathlib import Path

from tests.client.server import Peer
from tests.client.trainer import batch, settings
from trmon_client.core import wire
from trmon_client.deciding.advice_cache import HOLDS_STEPS, Counsel
from trmon_client.monitor import Monitor

ADVICE = {"step": 7, "lr_scale": 0.5}
NEWER = {"step": 8, "lr_scale": 0.25}
SAMPLES = 4096
"""A trainer may number its steps by what they have seen."""


def after(counsel: Counsel, n_steps: int) -> list[object]:
    """Return what is advised at each of the next steps, of two updates each."""
    return [counsel.at(SAMPLES * step) for step in range(n_steps) for _update in (0, 1)]


def test_without_any_there_is_none() -> None:
    assert Counsel().at(0) is None


def test_advice_holds_for_a_hundred_steps_however_they_are_numbered() -> None:
    counsel = Counsel()
    counsel.hear(ADVICE)
    told = after(counsel, HOLDS_STEPS + 2)
    assert told == [ADVICE] * (2 * HOLDS_STEPS) + [None] * 4


def test_newer_advice_holds_anew_and_the_same_again_does_not() -> None:
    counsel = Counsel()
    counsel.hear(ADVICE)
    after(counsel, HOLDS_STEPS)
    counsel.hear(ADVICE)
    assert counsel.at(1) is None
    counsel.hear(NEWER)
    assert counsel.at(2) == NEWER


def test_advice_of_a_service_that_went_away_ends(tmp_path: Path) -> None:
    with Peer(acknowledge=lambda _: wire.Ack("stored", advice=ADVICE)) as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url))
        for n in (1, 2):
            monitor.pause()
            peer.wait_until(lambda peer, n=n: len(peer.of(wire.Pause)) == n)
    told = [monitor.log_batch(step=step, **batch(1)).advice for step in range(HOLDS_STEPS + 1)]
    assert told == [ADVICE] * HOLDS_STEPS + [None]
    monitor.close()
