"""The colors behind a chart change at the healthy range of its signal and at the limits of findings."""

from __future__ import annotations

import math
import re

import pytest

from dashboards.source.panels import ACT, HEALTHY, WATCH, Step, band, judges
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon_client.core.signals.catalogue import SIGNALS

BANDS: list[tuple[str, str, list[Step]]] = [
    ("a range above, then a finding", "kl_k3", [(None, HEALTHY), (0.005, WATCH), (0.05, WATCH)]),
    ("a limit of a range and of a finding is one", "ess_token", [(None, WATCH), (0.5, HEALTHY)]),
    (
        "a distance from one, with a page far below",
        "prob_pearson",
        [(None, ACT), (-0.9, WATCH), (0.95, WATCH), (0.99, HEALTHY)],
    ),
    (
        "a size, on both sides",
        "kl_k1",
        [(None, WATCH), (-0.05, WATCH), (-0.02, HEALTHY), (0.02, WATCH), (0.05, WATCH)],
    ),
    ("a page alone", "invalid_fraction", [(None, HEALTHY), (0.01, ACT)]),
    ("what is shown and never judged", "prob_diff_max", [(None, HEALTHY)]),
    ("a signal computed by the service, with a rule", "mask_rate", [(None, HEALTHY), (0.5, WATCH)]),
]


@pytest.mark.parametrize(("signal", "steps"), [case[1:] for case in BANDS], ids=[case[0] for case in BANDS])
def test_a_band(signal: str, steps: list[Step]) -> None:
    assert band(signal) == steps


@pytest.mark.parametrize("signal", builtin_catalogue().ranges)
def test_the_steps_of_every_band_ascend_from_the_least(signal: str) -> None:
    (first, _), *rest = band(signal)
    values = [value for value, _ in rest]
    assert first is None
    assert values == sorted(values)
    assert any(color == HEALTHY for _, color in band(signal))


def test_a_clause_that_reads_other_signals_too_is_no_limit_of_a_chart() -> None:
    assert [clause.key for clause in judges("kl_k3")] == ["engine_mismatch.kl_k3"]


def test_the_risk_of_a_collapse_is_banded_by_the_thresholds_of_its_model() -> None:
    model = shipped_model().file
    assert band("collapse_risk") == [(None, HEALTHY), (model.warn_at, WATCH), (model.page_at, ACT)]


@pytest.mark.parametrize("name", builtin_catalogue().ranges)
def test_the_healthy_range_that_a_signal_is_described_with_is_that_of_the_judge(name: str) -> None:
    described = {spec.healthy for spec in SIGNALS.values() if spec.stem == name and spec.healthy}
    known = builtin_catalogue().ranges[name]
    for words in described:
        said = {float(one) for one in re.findall(r"\d[\d.e-]*", words)}
        assert said == {abs(end) for end in (known.least, known.most) if math.isfinite(end)}
