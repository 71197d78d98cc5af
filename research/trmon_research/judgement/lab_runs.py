"""The judge over the lab's stored runs: what it told of those that collapsed, and of those that were never hurt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trmon.domain.backtest.rule_replay import RuleReplay
from trmon.domain.backtest.stored_history import StoredHistory
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.severity import Severity
from trmon_research.collapse import severity
from trmon_research.collapse.stored_runs import RUNS
from trmon_research.judgement.changes import Verdict
from trmon_research.judgement.folded import FINDINGS, Course, FoldedRun, Told
from trmon_research.sweep.run_file import read_columns, read_record
from trmon_research.sweep.run_labels import HORIZON
from trmon_research.sweep.swept_history import swept_histories

SOON = 20


@dataclass(frozen=True, slots=True)
class LabRun:
    """A stored run: the update of its collapse and those at which it was hurt, what was told, and the last verdict."""

    name: str
    mechanism: str
    onset: int | None
    hurt: tuple[int, ...]
    told: Sequence[Told]
    verdict: Verdict

    @property
    def was_hurt(self) -> bool:
        """Whether it collapsed, or was hurt at any time."""
        return self.onset is not None or bool(self.hurt)

    def is_harm(self, row: int) -> bool:
        """Whether the run is hurt, or collapses, within 200 updates after a row, or was before."""
        until = row + HORIZON
        return any(update <= until for update in self.hurt) or (self.onset is not None and self.onset <= until)


def lab_runs(folder: Path = RUNS) -> Iterator[LabRun]:
    """Yield the runs of a sweep's folder, judged as the service's worker judges them."""
    for swept in swept_histories(folder, runs=()):
        path = folder / f"{swept.history.run.key.run}.parquet"
        evaluated = read_columns(path)["evaluated_reward"].astype(float).tolist()
        record = read_record(path)
        found = judged_history(swept.history)
        yield LabRun(
            name=path.stem,
            mechanism=record.config.mechanism,
            onset=record.outcome.label.onset,
            hurt=tuple(np.flatnonzero(severity.Course.of(evaluated).lost >= severity.HURT).tolist()),
            told=found.told,
            verdict=Verdict.of(found.state),
        )


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


def _has_page(run: LabRun) -> bool:
    return any(told.severity is Severity.PAGE for told in run.told)


def figures(runs: Sequence[LabRun]) -> Iterator[tuple[str, int, int, str]]:
    """Yield the figures: what is counted, the count, of how many, and what is wanted."""
    unhurt = [run for run in runs if not run.was_hurt]
    collapsed = [(run, run.onset) for run in runs if run.onset is not None]
    pages = [run.is_harm(told.row) for run in runs for told in run.told if told.severity is Severity.PAGE]
    first = [(min((told.row for told in run.told), default=None), onset) for run, onset in collapsed]
    yield "never hurt: paged", sum(_has_page(run) for run in unhurt), len(unhurt), "at most 6"
    yield "never hurt: warned or paged", sum(bool(run.told) for run in unhurt), len(unhurt), "at most 25%"
    soon = sum(row is not None and row <= onset + SOON for row, onset in first)
    yield f"told by {SOON} rows after the collapse began", soon, len(collapsed), "80%"
    yield "told before it began", sum(row is not None and row < onset for row, onset in first), len(collapsed), "75%"
    yield "pages that were harm", sum(pages), len(pages), "90%"
