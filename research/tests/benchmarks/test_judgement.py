"""The figures of the judge: what counts as told, as right and as harm, and which verdicts changed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trmon.domain.findings.judge import Place, Row
from trmon_research.judgement import real_runs
from trmon_research.judgement.changes import BEFORE, Verdict, changes
from trmon_research.judgement.folded import Course, FoldedRun, folded
from trmon_research.judgement.sparse_logs import collapse
from trmon_research.language_like.judged import fold_plan, judgement_of
from trmon_research.language_like.plans import plans

FALLS_AT, ROWS = 60, 120


def trained(*, falls: bool, mismatch: float = 0.0005, seed: int = 0) -> Iterator[dict[str, float]]:
    """Yield rows of a run whose reward rises, and may fall in row 60."""
    noise = random.Random(seed)
    for row in range(ROWS):
        reward = 0.1 if falls and row >= FALLS_AT else 0.4 + 0.003 * row
        yield {
            "reward_mean": reward + noise.gauss(0, 0.01),
            "grad_norm": 0.3 + noise.gauss(0, 0.01),
            "mismatch_kl_k3": mismatch,
        }


def judged(values: Iterator[dict[str, float]]) -> FoldedRun:
    return folded(Row(place=Place(1, step), values=row, facts={}) for step, row in enumerate(values))


def test_a_finding_is_told_once_and_only_after_the_first_rows_of_a_run() -> None:
    found = judged(trained(falls=False, mismatch=0.2))
    assert found.leaders[4:] == ["engine_mismatch"] * (ROWS - 4)
    assert [(told.row, told.spell.finding, told.spell.onset) for told in found.told] == [(20, "engine_mismatch", 0)]
    assert not found.pages


def test_what_a_cause_explains_does_not_take_the_lead_from_it() -> None:
    found = judged(trained(falls=True, mismatch=0.2))
    assert {told.spell.finding for told in found.pages} >= {"reward_collapse"}
    assert (found.first_cause, found.leaders[-1]) == ("engine_mismatch", "engine_mismatch")
    assert judged(trained(falls=True)).leaders[-1] == "reward_collapse"


def test_a_course_without_rows_is_empty() -> None:
    assert Course().run().leaders == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that collapses, a healthy one, one called healthy though it collapses, a short log, and a disputed one."""
    readings = (("fell", "ill", True), ("rose", "healthy", False), ("missed", "healthy", True))
    (tmp_path / "runs").mkdir()
    lines = []
    for name, verdict, falls in readings:
        rows = ({"step": step, **row} for step, row in enumerate(trained(falls=falls)))
        (tmp_path / "runs" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        accept = ["reward_collapse"] if verdict == "ill" else []
        from_row = FALLS_AT if verdict == "ill" else None
        lines.append(json.dumps({"id": name, "verdict": verdict, "accept": accept, "from_row": from_row}))
    (tmp_path / "runs" / "console.log").write_text("".join(f"step {i}: reward=0.5 loss=0.1\n" for i in range(9)))
    lines += [json.dumps({"id": "console", "verdict": "uninformative"}), json.dumps({"id": "x", "verdict": "disputed"})]
    (tmp_path / "manifest.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_real_runs_count_for_clauses_by_their_reading(folder: Path) -> None:
    runs = list(real_runs.real_runs(folder))
    counts = real_runs.clause_counts(runs)
    assert counts["reward_collapse.fall"] == (1, 1)
    figures = {name: (count, of) for name, count, of, _ in real_runs.figures(runs)}
    assert figures["ill: a right finding stands at the end"] == (1, 1)
    assert figures["healthy: paged"] == (1, 2)
    assert figures["uninformative: silent"] == (1, 1), "a log of another format; a disputed one counts nowhere"
    assert figures["onset within 3 rows"] == (1, 1)
    [line] = real_runs.wrong_runs(runs)
    assert line.startswith("missed: healthy: reward_collapse.fall in row ")


def test_changed_verdicts_are_counted_with_what_decides_and_renamed_ones_are_not() -> None:
    before = json.loads(BEFORE.read_text())["lab"]
    stale = next(name for name, word in before.items() if word == "reward_collapse")
    fine = next(name for name, word in before.items() if word == "no drift found")
    now = {stale: Verdict("step_too_large", "`kl_k3`"), fine: Verdict("healthy", ""), "unknown": Verdict("healthy", "")}
    lines = list(changes("lab", now))
    assert lines[0] == "1 of 2 verdicts changed:"
    assert lines[-1] == "| reward_collapse | step_too_large | 1 | `kl_k3` 1 |"


def test_a_simulated_run_is_judged_from_its_file(tmp_path: Path) -> None:
    plan = next(plan for plan in plans() if plan.name == "ill-dead_reward")
    short = replace(plan, traits=replace(plan.traits, rows=40, view="log"))
    judgement = judgement_of(fold_plan(short, tmp_path))
    assert (judgement.onset, judgement.last_good, judgement.leaders[-1]) == (0, None, "no_learning_signal")
    assert [(sent.row, sent.severity) for sent in judgement.sent] == [(20, "warning")]


def test_the_sparse_log_is_of_a_long_run_with_an_onset_that_every_interval_logs() -> None:
    plan = collapse()
    assert plan.onset is not None
    assert (plan.traits.rows, plan.onset % 10, plan.traits.view) == (2000, 0, "log")
