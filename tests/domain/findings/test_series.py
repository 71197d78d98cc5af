"""The independent evaluator by hand-made rows."""

from __future__ import annotations

from itertools import islice

from tests.domain.findings.independent import evaluate
from tests.domain.findings.series import series


def test_what_stands_after_a_row_depends_on_no_later_row() -> None:
    for case in islice(series(), 6):
        n = len(case.rows)
        given = {"fresh": case.fresh, "config": {**case.config, "ended": False}}
        whole = evaluate(case.rows, attempts=case.attempts, **given)
        for i in (n // 3, n // 2, n - 2):
            part = evaluate(case.rows[: i + 1], attempts=case.attempts[: i + 1], **given)
            assert part.standing == whole.standing[: i + 1]


def test_a_level_from_the_first_row_on_trips_by_its_hold_and_begins_at_row_0() -> None:
    found = evaluate([{"mismatch_kl_k3": 0.2}] * 12)

    assert [bool(standing) for standing in found.standing] == [False] * 4 + [True] * 8
    assert [(spell.clause.finding, spell.trip, spell.onset) for spell in found.spells] == [("engine_mismatch", 4, 0)]


def test_a_finding_clears_after_ten_rows_below_four_fifths_of_its_limit() -> None:
    rows = [{"mismatch_kl_k3": k3} for k3 in (*[0.001] * 10, *[0.06] * 5, *[0.045] * 12, *[0.039] * 10)]

    (spell,) = [spell for spell in evaluate(rows).spells if spell.clause.key == "engine_mismatch.kl_k3"]

    assert (spell.trip, spell.onset, spell.end) == (14, 10, 36)


def test_a_missing_value_is_not_nan() -> None:
    rows = [{"loss": 0.1, "entropy": 0.5} if i % 10 == 0 else {"loss": 0.1} for i in range(40)]
    assert evaluate(rows).spells == []

    ill = [*rows, {"loss": float("nan")}, {"loss": float("nan")}]
    assert [(s.clause.finding, s.trip, s.onset) for s in evaluate(ill).spells] == [("not_a_number", 41, 40)]
