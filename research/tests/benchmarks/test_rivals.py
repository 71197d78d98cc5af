"""The comparison with other monitors: what counts as found, before the onset, alarmed and early."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from trmon.domain.analysis.collapse import WITHIN
from trmon_research.collapse.rivals.comparison_table import HEAD, approximations, comparison_table
from trmon_research.collapse.rivals.monitor_alerts import (
    MonitorAlert,
    MonitorAlerts,
    MonitorRecord,
    read_monitor_alerts,
    write_monitor_alerts,
)
from trmon_research.collapse.rivals.scoring import EARLIEST_ONSET, score_alerts, with_severity


def _alerts(*steps: int, severity: str = "warning") -> tuple[MonitorAlert, ...]:
    return tuple(MonitorAlert(step, "entropy", severity) for step in steps)


@pytest.mark.parametrize(
    ("steps", "found", "found_before", "lead"),
    [
        ((), 0, 0, None),
        ((0,), 1, 1, 300.0),
        ((299, 350), 1, 1, 1.0),
        ((300,), 1, 0, None),
        ((300 + WITHIN,), 1, 0, None),
        ((301 + WITHIN,), 0, 0, None),
        ((340, 250), 1, 1, 50.0),
    ],
)
def test_a_collapse_is_found_by_an_alert_up_to_its_end_and_before_it_by_an_earlier_one(
    steps: tuple[int, ...], found: int, found_before: int, lead: float | None
) -> None:
    score = score_alerts({"run": _alerts(*steps)}, {"run": 300})
    assert (score.collapses, score.found, score.found_before, score.median_lead) == (1, found, found_before, lead)


def test_the_median_lead_is_over_collapses_found_before_their_onset() -> None:
    alerts = {"a": _alerts(90), "b": _alerts(40), "c": _alerts(120), "d": ()}
    score = score_alerts(alerts, dict.fromkeys("abcd", 100))
    assert (score.found, score.found_before, score.median_lead) == (3, 2, 35.0)


def test_other_runs_are_alarmed_by_any_alert_and_count_all_of_them() -> None:
    score = score_alerts({"calm": (), "alarmed": _alerts(5, 700, 790)}, {"calm": None, "alarmed": None})
    assert (score.others, score.others_alarmed, score.alerts_a_run) == (2, 1, 1.5)


def test_alerts_after_the_end_of_a_collapse_do_not_count() -> None:
    score = score_alerts({"run": _alerts(10, 200, 201)}, {"run": 200 - WITHIN})
    assert score.alerts_a_run == 2.0


def test_a_collapse_that_begins_early_is_counted_apart() -> None:
    onsets = {"early": EARLIEST_ONSET - 1, "missed": 0, "later": EARLIEST_ONSET}
    score = score_alerts({"early": _alerts(EARLIEST_ONSET), "missed": (), "later": _alerts(4)}, onsets)
    assert (score.early_collapses, score.early_found, score.collapses, score.found_before) == (2, 1, 1, 1)


def test_without_runs_there_is_no_mean_and_a_run_without_alerts_is_an_error() -> None:
    assert math.isnan(score_alerts({}, {}).alerts_a_run)
    with pytest.raises(KeyError, match="unknown"):
        score_alerts({}, {"unknown": None})


def test_one_severity_leaves_runs_without_it_in_place() -> None:
    alerts = {"a": _alerts(1) + _alerts(2, severity="critical"), "b": _alerts(3)}
    assert with_severity(alerts, "critical") == {"a": _alerts(2, severity="critical"), "b": ()}


def test_alerts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rivals.json"
    monitors = {
        "rlwatch": MonitorRecord(version="0.5.1", runs={"b": _alerts(1, 2), "a": ()}),
        "rlprobe": MonitorRecord(version="0.1.0", runs={"a": (), "b": ()}),
    }
    write_monitor_alerts(path, monitors)
    assert read_monitor_alerts(path) == MonitorAlerts(monitors=monitors)
    assert [line[:3] for line in path.read_text().splitlines() if line.startswith(('"a"', '"b"'))] == [
        *('"a"', '"b"'),
        *('"a"', '"b"'),
    ]
    path.write_text(path.read_text().replace('"format": 1', '"format": 0'))
    with pytest.raises(ValueError, match="make bench-rivals"):
        read_monitor_alerts(path)


def test_the_table_has_other_monitors_and_the_messages_of_trmon() -> None:
    runs = {"ill": _alerts(100) + _alerts(401, severity="critical"), "well": ()}
    told = {"ill": _alerts(350, severity="warn") + _alerts(410, severity="page"), "well": ()}
    found = MonitorAlerts(monitors={"rlwatch": MonitorRecord(version="0.5.1", runs=runs)})
    table = comparison_table(found, told, {"ill": 400, "well": None})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert rows[0] == list(HEAD)
    assert rows[2:] == [
        ["rlwatch 0.5.1", "1 of 1", "1 of 1", "300", "0 of 1", "1.0", "0 of 0"],
        ["rlwatch 0.5.1, critical only", "1 of 1", "0 of 1", "-", "0 of 1", "0.5", "0 of 0"],
        ["trmon, messages", "1 of 1", "1 of 1", "50", "0 of 1", "1.0", "0 of 0"],
        ["trmon, pages", "1 of 1", "0 of 1", "-", "0 of 1", "0.5", "0 of 0"],
    ]


def test_each_monitor_states_what_was_approximated() -> None:
    lines = approximations()
    assert {line.split(":")[0] for line in lines} == {"- all", "- rlwatch", "- rldoctor", "- rlprobe"}
    assert not any("\n" in line or "  " in line for line in lines)
