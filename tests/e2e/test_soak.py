"""`make soak`, each process once: it dies under load, and nothing is lost or said twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load.gears import GearOf, embedded, fleet
from benchmarks.load.soak import soak, variables_for
from benchmarks.load.verification import Verdict
from tests.fixtures.receiver import WebhookServer


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "gear_of", [embedded, pytest.param(fleet, marks=pytest.mark.server("postgres", "redis-server"))]
)
def test_a_kill_under_load_loses_no_acknowledged_report_and_repeats_no_alert(tmp_path: Path, gear_of: GearOf) -> None:
    with WebhookServer() as pager, gear_of(tmp_path, **variables_for(pager)) as gear:
        soaked = soak(gear, pager, n_rounds=1, seed=7)
        assert {moment.victim for moment in soaked.moments} == set(gear.victims)
    assert soaked.verdict == Verdict(lost=0, duplicated=0)
    assert (soaked.repeated_events, soaked.repeated_pages) == (0, 0)
    assert soaked.sent.broken, "nothing was killed while something was sent"
    assert soaked.n_events, "no alert fired, so none could be repeated"
