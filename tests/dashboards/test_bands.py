"""The colors behind a chart change at the limits of the built-in rules."""

from __future__ import annotations

import pytest

from dashboards.source.panels import ACT, HEALTHY, JUDGES, SMALLEST, WATCH, Step, band
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS

BANDS: list[tuple[str, str, list[Step]]] = [
    ("a limit above", "kl_k3", [(None, HEALTHY), (0.05, WATCH)]),
    ("two limits above, the milder first", "chi2_token", [(None, HEALTHY), (0.3, WATCH), (1, WATCH)]),
    ("a limit below", "ess_token", [(None, WATCH), (0.5, HEALTHY)]),
    ("a distance from one, on both sides", "ratio_mean", [(None, WATCH), (0.98, HEALTHY), (1.02, WATCH)]),
    ("any value above zero, then a page", "invalid_fraction", [(None, HEALTHY), (SMALLEST, WATCH), (0.01, ACT)]),
    ("a limit besides a growth rule on the same signal", "clip_fraction", [(None, HEALTHY), (0.2, WATCH)]),
    ("a signal computed by the service", "mask_rate", [(None, HEALTHY), (0.5, WATCH)]),
]


@pytest.mark.parametrize(("signal", "steps"), [case[1:] for case in BANDS], ids=[case[0] for case in BANDS])
def test_a_band(signal: str, steps: list[Step]) -> None:
    assert band(signal) == steps


def test_the_steps_of_every_band_ascend_from_the_least() -> None:
    for signal in JUDGES:
        (first, _), *rest = band(signal)
        values = [value for value, _ in rest]
        assert first is None
        assert values == sorted(values), signal
        assert any(color == HEALTHY for _, color in band(signal)), signal


def test_the_risk_of_a_collapse_is_banded_by_the_thresholds_of_its_model() -> None:
    model = shipped_model().file
    assert band("collapse_risk") == [(None, HEALTHY), (model.warn_at, WATCH), (model.page_at, ACT)]


def test_every_banded_name_is_a_signal() -> None:
    assert JUDGES.keys() <= {spec.stem for spec in SIGNALS.values()} | DERIVED.keys()
