"""Policies that the service offers: adopted, refused, reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client.server import Peer
from tests.client.trainer import batch, settings
from trmon_client.active_policies import VALID_STEPS, AdviceCache
from trmon_client.core import wire
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.monitor import Monitor


def update(policy: Policy, **changed: Any) -> wire.PolicyUpdate:
    return wire.PolicyUpdate(**{"hash": policy.hash, "spec": policy.spec(), **changed})


def policies_used(tmp_path: Path, offered: wire.PolicyUpdate, *, steps: int = 3) -> tuple[list[str], wire.Finish]:
    """Log steps one by one, each after the answer to the previous one; return the policies and the finish."""
    with Peer(acknowledge=lambda _: wire.Ack("stored", policy=offered)) as peer:
        with Monitor(settings(tmp_path, url=peer.url)) as monitor:
            for step in range(steps):
                monitor.log_batch(step=step, **batch())
                peer.wait_for(wire.Report, n=step + 1)
                monitor.pause()
                peer.wait_for(wire.Pause, n=step + 1)
        return [report.policy for report in peer.of(wire.Report)], peer.of(wire.Finish)[0]


def test_an_offered_policy_decides_from_the_next_call_on(tmp_path: Path) -> None:
    wanted = preset("trm_max", delta=0.02)
    used, finish = policies_used(tmp_path, update(wanted))
    assert used == [preset("trm_auto").hash, wanted.hash, wanted.hash]
    assert finish.losses.refused_policies == {}


def test_an_offered_policy_waits_for_its_step(tmp_path: Path) -> None:
    wanted = preset("geo_mask")
    used, _ = policies_used(tmp_path, update(wanted, from_step=2))
    assert used == [preset("trm_auto").hash, preset("trm_auto").hash, wanted.hash]


STALE = Policy("stale", (), (TokenRule("tis", "staleness", upper=2.0),))
REFUSED = {
    "it cannot be parsed": (
        update(preset("geo_mask"), spec={"name": "vibes", "criteria": {}}),
        "criteria must be a list",
    ),
    "its hash is not that of its content": (update(preset("geo_mask"), hash="0" * 32), "hashes to"),
    "it needs what the run does not log": (update(preset("opsm")), "advantages"),
    "a token rule of it reads a pair that is not there": (update(STALE), "tis of staleness needs"),
}


@pytest.mark.parametrize(("offered", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_policy_is_refused_and_the_previous_one_stays(
    tmp_path: Path, offered: wire.PolicyUpdate, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    used, finish = policies_used(tmp_path, offered)
    assert set(used) == {preset("trm_auto").hash}
    assert finish.losses.refused_policies.keys() == {offered.hash}
    assert why in finish.losses.refused_policies[offered.hash]
    assert capsys.readouterr().err.count("is refused, trm_auto stays") == 1


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


ASKS, QUIET = {"step": 9, "save_checkpoint": True}, {"step": 10, "save_checkpoint": False}


def saves(advice_cache: AdviceCache, steps: list[int]) -> list[bool]:
    found = [advice_cache.at(step) for step in steps]
    return [advice is not None and advice.save_checkpoint for advice in found]


def test_a_checkpoint_is_asked_for_in_all_calls_of_one_step_once_an_illness() -> None:
    advice_cache = AdviceCache(asks_to_save=True)
    advice_cache.update(ASKS)
    assert saves(advice_cache, [3, 3, 3, 4, 5]) == [True, True, True, False, False]
    advice_cache.update({**ASKS, "step": 10})
    assert saves(advice_cache, [6, 7]) == [False, False]
    advice_cache.update(QUIET)
    advice_cache.update({**ASKS, "step": 11})
    assert saves(advice_cache, [8, 9]) == [True, False]


def test_a_checkpoint_asked_for_between_two_calls_of_a_step_is_shown_in_all_of_the_next() -> None:
    advice_cache = AdviceCache(asks_to_save=True)
    assert saves(advice_cache, [3]) == [False]
    advice_cache.update(ASKS)
    assert saves(advice_cache, [3, 4, 4, 5]) == [False, True, True, False]


def test_a_request_is_taken_once_and_only_by_a_trainer_that_opted_in() -> None:
    advice_cache = AdviceCache(asks_to_save=True)
    assert not advice_cache.take_request()
    advice_cache.update(ASKS)
    assert [advice_cache.take_request() for _ in range(2)] == [True, False]
    other = AdviceCache()
    other.update(ASKS)
    assert not other.take_request()
    assert saves(other, [1]) == [False]


def test_an_incident_is_taken_when_it_opens_and_when_it_becomes_a_page() -> None:
    advice_cache = AdviceCache()
    assert advice_cache.take_incident() is None

    def taken(**incident: object) -> object:
        advice_cache.update(
            {"step": 1, "incident": {"opened_step": 4, "severity": "warn", **incident} if incident else None}
        )
        found = advice_cache.take_incident()
        return found and (found["opened_step"], found["severity"])

    assert taken(cause="drift") == (4, "warn")
    assert taken(cause="revised") is None
    assert taken(severity="page") == (4, "page")
    assert taken() is None
    assert taken(opened_step=90) == (90, "warn")
