"""Calibrates the policy of one run on its own early steps, which it reads from the store when there are enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from trmon.domain.adaptation.calibration import (
    NOT_SILENT,
    SECOND_STEP,
    CalibrationPhase,
    CalibrationPlan,
    CalibrationResult,
    CalibrationStep,
    calibrate,
    calibration_plan,
    first_sample,
    raise_bounds,
    second_sample,
    version_of_calibration,
)
from trmon.domain.adaptation.proposal import PolicySample, StepKey, sample_of_reports
from trmon.domain.batches.batch import BatchRow
from trmon.domain.messages import decode_reports
from trmon.domain.pipeline.judging import standing_findings
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.runs.run import Run
from trmon.worker.recovery import PAGE
from trmon.worker.run_context import RunHistory

MISMATCH = "mismatch_kl_k3"
"""Only rows with this signal have sequences to measure."""
LR = ("lr", "learning_rate", "actor/lr")
"""The names under which trainers send the learning rate."""
MAX_STEPS = 4096
"""The steps within which the first calibration must find its sequences."""
MAX_STEPS_WITHOUT_MISMATCH = 64
"""A run without a mismatch pair in its first steps is not calibrated."""


class Calibrator:
    """Follows the steps of a run whose policy is to be calibrated; does nothing for other policies.

    It keeps only numbers of steps. After a restart it reads them from the stored rows; the policy versions say which
    calibrations were made.
    """

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._current: PolicyVersion | None = None
        self._plan: CalibrationPlan | None = None
        self._asked_at = math.nan
        self._steps: dict[StepKey, CalibrationStep] = {}
        self._evaluated_steps = 0

    def configure(self, run: Run, current: PolicyVersion, *, ordinal: int) -> None:
        """Follow the run's policy; for another policy the steps are read from the store.

        Args: ordinal: of the run's newest folded row.
        """
        if current is self._current:
            return
        self._current = current
        history = [default_version(now=run.created_at), *self._history.policies.history(run.id)]
        self._plan = calibration_plan(history if history[-1] == current else [*history, current])
        if self._plan is None:
            self._steps = {}
            return
        self._evaluated_steps = 0
        if self._plan.asked.created_at != self._asked_at or not self._steps:
            self._asked_at = self._plan.asked.created_at
            self._steps = {}
            self._read_steps(run, ordinal)
            if self._plan.phase is CalibrationPhase.SECOND and len(self._steps) > SECOND_STEP:
                self._plan = None

    def add_rows(self, rows: Iterable[BatchRow]) -> None:
        """Add rows of this pass, revised ones and those with later scalars included."""
        if self._plan is None:
            return
        for row in sorted(rows, key=lambda row: row.ordinal):
            if row.closed_at >= self._asked_at:
                self._add(row)

    def next_version(self, *, state: PipelineState, now: float) -> PolicyVersion | None:
        """Return the version of a calibration that is due now, or None."""
        plan = self._plan
        # The newest step may get more updates and scalars.
        steps = list(self._steps.values())[:-1]
        if plan is None or len(steps) == self._evaluated_steps:
            return None
        self._evaluated_steps = len(steps)
        assert plan.asked.policy.calibrate is not None
        sequences = plan.asked.policy.calibrate.sequences
        is_first = plan.phase is CalibrationPhase.FIRST
        sample = (first_sample if is_first else second_sample)(steps, sequences=sequences)
        if sample is None:
            self._give_up_late(steps, is_first=is_first)
            return None
        self._plan = None
        result = self._result(plan, sample, findings=standing_findings(state.judge))
        if result is None:
            return None
        return version_of_calibration(result, plan, steps=(sample[0].key.step, sample[-1].key.step), now=now)

    def _result(
        self, plan: CalibrationPlan, sample: Sequence[CalibrationStep], *, findings: frozenset[str]
    ) -> CalibrationResult | None:
        if plan.phase is CalibrationPhase.FIRST:
            return calibrate(self._samples(plan, sample), plan.asked.policy, findings=findings)
        if findings & set(NOT_SILENT):
            return None
        return raise_bounds(self._samples(plan, sample), plan.asked.policy, calibrated=plan.current.policy)

    def _samples(self, plan: CalibrationPlan, sample: Sequence[CalibrationStep]) -> list[PolicySample]:
        """Return the statistics of each step; pruned and damaged reports, and those without mismatch, are left out."""
        found = []
        for step in sample:
            reports, _ = decode_reports(self._history.reports_of(step.key))
            columns = (report.columns() for report in reports)
            measured = sample_of_reports((one for one in columns if "mismatch" in one.pairs), plan.asked.policy)
            if measured is not None and len(measured):
                found.append(measured)
        return found

    def _give_up_late(self, steps: Sequence[CalibrationStep], *, is_first: bool) -> None:
        measured = sum(step.n_sequences > 0 for step in steps[:MAX_STEPS_WITHOUT_MISMATCH])
        is_late = len(steps) >= MAX_STEPS if is_first else len(steps) >= SECOND_STEP
        if is_late or (len(steps) >= MAX_STEPS_WITHOUT_MISMATCH and not measured):
            self._plan = None
            self._steps = {}

    def _read_steps(self, run: Run, ordinal: int) -> None:
        """Read the steps since the policy was set from the stored rows, as many as the calibration can need."""
        assert self._plan is not None
        most = MAX_STEPS if self._plan.phase is CalibrationPhase.FIRST else SECOND_STEP
        after = self._first_ordinal(run, ordinal)
        while rows := self._history.batches_after(run.id, after, limit=PAGE):
            for row in rows:
                self._add(row)
            after = rows[-1].ordinal
            steps = list(self._steps.values())
            is_idle = len(steps) > MAX_STEPS_WITHOUT_MISMATCH and not any(step.n_sequences for step in steps)
            if is_idle or len(steps) > most:
                return

    def _first_ordinal(self, run: Run, ordinal: int) -> int:
        """Return the ordinal after which rows were closed under the policy, by bisection; 0 for a run's first one."""
        if self._asked_at <= run.created_at:
            return 0
        low, high = 0, ordinal
        while low < high:
            middle = (low + high) // 2
            found = self._history.batches_after(run.id, middle, limit=1)
            if found and found[0].closed_at < self._asked_at:
                low = found[0].ordinal
            else:
                high = middle
        return low

    def _add(self, row: BatchRow) -> None:
        place = (row.key.attempt_id, row.key.step)
        former = self._steps.get(place)
        lr = next((row.scalars[name] for name in LR if name in row.scalars), math.nan)
        has_mismatch = not math.isnan(row.signals.get(MISMATCH, math.nan))
        added = CalibrationStep(row.key, row.n_sequences if has_mismatch else 0, lr)
        if former is not None:
            lr = former.lr if math.isnan(lr) else lr
            replaces = row.key.update is None or (former.key.update is not None and row.key.update >= former.key.update)
            kept = added if replaces else former
            added = CalibrationStep(kept.key, kept.n_sequences, lr)
        self._steps[place] = added
