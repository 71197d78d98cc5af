"""The judge over the lab's stored runs: what it told of each, and the last verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trmon.domain.backtest.evaluation import StoredHistory
from trmon.domain.backtest.rule_replay import RuleReplay
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon_research.collapse.stored_runs import RUNS, StoredRun, read_runs
from trmon_research.judgement.changes import Verdict
from trmon_research.judgement.folded import FINDINGS, Course, FoldedRun, Told
from trmon_research.sweep.swept_history import swept_histories


@dataclass(frozen=True, slots=True, eq=False)
class LabRun:
    """A stored run, what was told of it, and the last verdict."""

    stored: StoredRun
    told: Sequence[Told]
    verdict: Verdict


def lab_runs(folder: Path = RUNS) -> Iterator[LabRun]:
    """Yield the runs of a sweep's folder, judged as the service's worker judges them."""
    stored = {run.name: run for run in read_runs(folder)}
    for swept in swept_histories(folder, runs=()):
        found = judged_history(swept.history)
        yield LabRun(stored[swept.history.run.key.run], found.told, Verdict.of(found.state))


def judged_history(history: StoredHistory, *, model: RiskModel | None = None) -> FoldedRun:
    """Return a stored run judged by the worker's stages; a row is a step. Args: model: in place of the shipped one."""
    replay, course = RuleReplay(FINDINGS, history.run, model=model), Course()
    for row in history.rows():
        replay.add(row)
        if replay.pipeline_state.judge.rows > course.state.rows:
            course.add(replay.pipeline_state.judge)
    replay.finish()
    course.add(replay.pipeline_state.judge)
    return course.run()
