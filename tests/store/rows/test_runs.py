"""Summaries as rows: what is read is what was written, whatever the diagnosis."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.finding import Finding
from trmon.domain.health.run_summary import RunSummary, Sparkline, SummaryBasis
from trmon.store.rows.runs import summary_from_row, summary_to_row

TEMPERATURE = {
    "temperature_slope": -0.016,
    "temperature_corr": -0.26,
    "mismatch_temperature_near": 0.95,
    "mismatch_temperature_far": 0.9,
}


def summary_of(diagnosis: Diagnosis) -> RunSummary:
    return RunSummary(
        run_id=7,
        basis=SummaryBasis(attempt_id=1, step=2, report_id=3, notice_id=4),
        made_at=5.5,
        diagnosis=diagnosis,
        reward=Sparkline(first_step=0, last_step=2, values=(None, 0.5)),
        kl=Sparkline(first_step=0, last_step=2, values=(0.1, 0.2)),
        mask_rate=math.inf,
        expected_step_seconds=None,
    )


@pytest.mark.parametrize(
    ("changed", "primary"),
    [
        ({}, Finding.HEALTHY),
        ({"without": ("grad_norm",)}, Finding.UNKNOWN),
        ({"engine_lag": 16, "mismatch_prob_pearson": 0.4, "mismatch_chi2_token": 2}, Finding.STALENESS),
        ({"invalid_fraction": 0.2}, Finding.CORRUPT_LOGPROBS),
        (TEMPERATURE, Finding.TEMPERATURE),
    ],
)
def test_a_summary_is_the_same_after_a_row(changed: dict[str, Any], primary: Finding) -> None:
    summary = summary_of(diagnose(run(**changed)))
    assert summary.diagnosis.primary is primary
    assert (summary.diagnosis.temperatures is not None) == (primary is Finding.TEMPERATURE)
    read = summary_from_row(SimpleNamespace(**summary_to_row(summary)))
    assert read == summary
    assert read is not None
    assert read.diagnosis.rendered_remedy() == summary.diagnosis.rendered_remedy()
