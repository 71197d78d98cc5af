"""Labels of hand-made courses: where a collapse begins, and what a predictor should have said before."""

from __future__ import annotations

from trmon.domain.analysis.collapse import CollapseSign
from trmon_research.sweep.run_labels import HORIZON, label_run

STEADY = [1.0] * 500


def _held(values: list[float]) -> list[float]:
    """Return evaluations every ten updates, held between."""
    return [value for value in values for _ in range(10)]


def test_a_reward_that_falls_for_good_collapses_where_its_average_crosses() -> None:
    label = label_run(_held([0.8] * 30 + [0.2] * 20), STEADY)
    assert label.sign is CollapseSign.REWARD_FELL
    assert label.onset is not None
    # 0.2 + 0.6 (1 - 2/21)^n <= 0.56 from n = 6 on, the 6th update after the fall
    assert label.onset == 305


def test_a_run_that_falls_at_once_has_collapsed_at_once() -> None:
    label = label_run(_held([0.6] + [0.3] * 49), STEADY)
    # 0.3 + 0.3 (1 - 2/21)^n <= 0.42 from n = 10 on, the 10th update after the fall
    assert label.onset == 19


def test_a_dip_that_recovers_and_a_late_fall_are_no_collapse() -> None:
    assert label_run(_held([0.8] * 20 + [0.2] * 5 + [0.8] * 25), STEADY).onset is None
    assert label_run(_held([0.8] * 45 + [0.2] * 5), STEADY).onset is None


def test_a_gradient_spike_with_a_lower_reward_after_it_collapses_at_the_spike() -> None:
    norms = [1.0] * 500
    norms[200] = 50.0
    lower = label_run(_held([0.8] * 20 + [0.6] * 30), norms)
    assert (lower.onset, lower.sign) == (200, CollapseSign.GRADIENT_SPIKED)
    assert label_run(_held([0.8] * 50), norms).onset is None


def test_a_predictor_is_judged_within_the_horizon_and_never_after_the_onset() -> None:
    label = label_run(_held([0.8] * 30 + [0.2] * 20), STEADY)
    assert label.onset is not None
    assert label.collapses_after(label.onset - HORIZON - 1) is False
    assert label.collapses_after(label.onset - HORIZON) is True
    assert label.collapses_after(label.onset - 1) is True
    assert label.collapses_after(label.onset) is None


def test_what_a_run_is_too_short_to_tell_is_unknown() -> None:
    label = label_run(_held([0.8] * 50), STEADY)
    assert label.collapses_after(500 - 100 - HORIZON) is False
    assert label.collapses_after(500 - 100 - HORIZON + 1) is None
