"""How long advice is valid, also after the service became unreachable."""

from __future__ import annotations

from pathlib import Path

from tests.client.server import Peer
from tests.client.trainer import batch, settings
from trmon_client.active_policies import VALID_STEPS, AdviceCache
from trmon_client.core import wire
from trmon_client.monitor import Monitor

ADVICE = {"step": 7, "lr_scale": 0.5}
NEWER = {"step": 8, "lr_scale": 0.25}
SAMPLES = 4096
"""A trainer may number its steps by the samples they have seen."""


def after(advice_cache: AdviceCache, n_steps: int) -> list[object]:
    """Return the advice at each of the next steps, of two updates each."""
    return [advice_cache.at(SAMPLES * step) for step in range(n_steps) for _update in (0, 1)]


def test_without_advice_there_is_none() -> None:
    assert AdviceCache().at(0) is None


def test_advice_is_valid_for_a_hundred_steps_however_they_are_numbered() -> None:
    advice_cache = AdviceCache()
    advice_cache.update(ADVICE)
    found = after(advice_cache, VALID_STEPS + 2)
    assert found == [ADVICE] * (2 * VALID_STEPS) + [None] * 4


def test_newer_advice_is_valid_again_and_repeated_advice_is_not() -> None:
    advice_cache = AdviceCache()
    advice_cache.update(ADVICE)
    after(advice_cache, VALID_STEPS)
    advice_cache.update(ADVICE)
    assert advice_cache.at(1) is None
    advice_cache.update(NEWER)
    assert advice_cache.at(2) == NEWER


def test_advice_of_an_unreachable_service_expires(tmp_path: Path) -> None:
    with Peer(acknowledge=lambda _: wire.Ack("stored", advice=ADVICE)) as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url))
        for n in (1, 2):
            monitor.pause()
            peer.wait_until(lambda peer, n=n: len(peer.of(wire.Pause)) == n)
    found = [monitor.log_batch(step=step, **batch(1)).advice for step in range(VALID_STEPS + 1)]
    assert found == [ADVICE] * VALID_STEPS + [None]
    monitor.close()
