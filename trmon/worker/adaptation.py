"""Adapts a run's bounds: calibrated on its own early steps, then after closed batches; and advises its trainer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import structlog

from trmon.domain.adaptation.calibration import (
    NOT_SILENT,
    SECOND_STEP,
    CalibrationPhase,
    CalibrationPlan,
    CalibrationResult,
    CalibrationStep,
    calibrate,
    calibrated_limits,
    calibration_plan,
    first_sample,
    raise_bounds,
    second_sample,
    version_of_calibration,
)
from trmon.domain.adaptation.proposal import (
    AdaptationMode,
    AdaptationSetting,
    BoundProposal,
    PolicySample,
    SampleWindow,
    StepKey,
    policy_reads,
    sample_of_reports,
)
from trmon.domain.adaptation.target_mask_rate import anchor_of, propose, version_of_proposal
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.domain.budget.trainer_advice import (
    STOPPING_FINDINGS,
    TARGET_STEPS,
    KlTarget,
    advise,
    ess_target,
    lr_decay,
    stops_on_collapse,
)
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyReport, StoredReport, decode_reports
from trmon.domain.pipeline.judging import standing_findings
from trmon.domain.pipeline.merge import ClosingBatch
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.runs.run import Run, RunState
from trmon.worker.pass_changes import PassChanges
from trmon.worker.recovery import PAGE, LoadedRun
from trmon.worker.run_context import RunHistory
from trmon_client.api.budget import AdviceInfo, LrDecayInfo
from trmon_client.core.policies.policy import Policy

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


T = TypeVar("T")
FIRST_ROWS = 256
"""How many of a run's first batches are searched for its first gauge rows."""

log = structlog.get_logger(__name__)


class BoundController:
    """Holds the newest sequences of a run in memory; does nothing unless the mode is `apply`."""

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._setting = AdaptationSetting()
        self._window_config: object = None
        self._window: SampleWindow | None = None
        self._steps: set[StepKey] = set()

    def configure(self, setting: AdaptationSetting, policy: Policy, *, gauge_keys: Sequence[BatchKey]) -> None:
        """Set the run's setting and policy; a window that does not fit them is read again from stored batches.

        Args: gauge_keys: the newest rows that gauges read, oldest first.
        """
        is_applied = setting.mode is AdaptationMode.APPLY
        window_config = (policy_reads(policy), setting.window_sequences) if is_applied else None
        self._setting = setting
        if window_config != self._window_config:
            self._window_config, self._steps, self._window = window_config, set(), None
            if window_config is not None:
                history = stored_samples(self._history.reports_of, reversed(gauge_keys), policy=policy)
                self._window = SampleWindow.of(history, n_sequences=setting.window_sequences)

    def add_batch(self, key: BatchKey, reports: Iterable[StoredReport], *, policy: Policy) -> None:
        """Add a batch that gauges read."""
        if self._window is None:
            return
        place = (key.attempt_id, key.step)
        self._steps.add(place)
        sample = sample_of_reports((report.columns() for report in reports), policy)
        if sample is not None:
            self._window = self._window.with_sample(place, sample)

    def next_version(self, run: Run, *, current: PolicyVersion, is_stalled: bool, now: float) -> PolicyVersion | None:
        """Run the controller every `every_steps` steps; return the version to adopt, None where the bounds stay."""
        if self._window is None or len(self._steps) < self._setting.every_steps:
            return None
        self._steps.clear()
        versions = [default_version(now=run.created_at), *self._history.policies.history(run.id)]
        result = propose(
            self._window.sample(),
            setting=self._setting,
            current=current,
            anchor=anchor_of(versions),
            is_stalled=is_stalled,
            calibrated=calibrated_limits(versions),
        )
        return version_of_proposal(result, current=current, now=now) if isinstance(result, BoundProposal) else None


def stored_samples(
    reports_of: Callable[[BatchKey], Sequence[AnyReport]], keys: Iterable[BatchKey], *, policy: Policy
) -> Iterator[tuple[StepKey, PolicySample]]:
    """Yield the sample of each stored batch that a policy reads, lazily; pruned and damaged batches are left out."""
    for key in keys:
        decoded, _ = decode_reports(reports_of(key))
        sample = sample_of_reports((report.columns() for report in decoded), policy)
        if sample is not None:
            yield (key.attempt_id, key.step), sample


class BoundAdaptation:
    """Feeds the calibrator and the bound controller with the run's batches, and adopts the versions they propose."""

    def __init__(self, run: LoadedRun) -> None:
        self._run = run
        self._controller = BoundController(run.context.history)
        self._calibrator = Calibrator(run.context.history)

    def configure(self, changes: PassChanges) -> None:
        """Give the controller the run's current setting and policy."""
        context = self._run.context
        setting, current = context.adaptation, context.policies.current.policy
        keys = self._run.pipeline_state.gauge_keys
        self._guard(lambda: self._controller.configure(setting, current, gauge_keys=keys), changes)
        run, version, ordinal = context.run, context.policies.current, self._run.pipeline_state.ordinal
        self._guard(lambda: self._calibrator.configure(run, version, ordinal=ordinal), changes)

    def add_batch(self, closing: ClosingBatch, changes: PassChanges) -> None:
        """Add a batch that gauges read to the controller's window."""
        key, reports = closing.batch.key, closing.batch.reports
        policy = self._run.context.policies.current.policy
        self._guard(lambda: self._controller.add_batch(key, reports, policy=policy), changes)

    def adapt(self, changes: PassChanges) -> None:
        """Adopt new bounds if there are some, unless the trainer asked for a policy in this pass."""
        rows = list(changes.rows.values())
        self._guard(lambda: self._calibrator.add_rows(rows), changes)
        if "policy" in changes.run:
            return
        context, is_stalled = self._run.context, self._run.life.state is RunState.STALLED
        current, state = context.policies.current, self._run.pipeline_state
        version = self._guard(
            lambda: self._calibrator.next_version(state=state, now=changes.now), changes
        ) or self._guard(
            lambda: self._controller.next_version(context.run, current=current, is_stalled=is_stalled, now=changes.now),
            changes,
        )
        if version is not None:
            context.adopt_policy(version, changes, at=changes.now)

    def _guard(self, act: Callable[[], T], changes: PassChanges) -> T | None:
        counts, run_id = changes.tally.quarantined, self._run.id
        return run_quarantined(QuarantinePart.ADAPTATION, act, counts=counts, run_id=run_id)


def run_quarantined(
    part: QuarantinePart, act: Callable[[], T], *, counts: Counter[QuarantinePart], run_id: int
) -> T | None:
    """Call a function and return its result; an error of arithmetic or of data is counted and logged, and gives None.

    Errors: those of the store, since a retry may succeed.
    """
    try:
        return act()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        counts[part] += 1
        log.error("part_quarantined", run_id=run_id, part=part.value, exc_info=error)
        return None


class Advisor:
    """Remembers the effective sample size of a run's first steps, and its last advice to cut the learning rate."""

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._target = math.nan
        self._is_target_final = False
        self._decay: LrDecayInfo | None = None

    def advice(
        self,
        row: BatchRow | None,
        *,
        run: Run,
        state: PipelineState,
        paging: Sequence[Alert],
        incident: Alert | None,
    ) -> AdviceInfo | None:
        """Return the advice after the newest gauge row; None before the first.

        Args: state: after that row; paging: firing alerts that page over batches; incident: the open one.
        """
        if row is None:
            return None
        if not self._is_target_final and state.steps > TARGET_STEPS:
            self._compute_target(run.id)
        standing = state.judge.standing
        self._decay = lr_decay(standing.get("length_surge"), step=row.key.step, last=self._decay)
        collapses = [alert for alert in paging if alert.rule in STOPPING_FINDINGS]
        return advise(
            row,
            target=self._target,
            decay=self._decay,
            kl_target=KlTarget.of(run.config),
            alerts=paging,
            collapses=collapses if stops_on_collapse(run.config) else (),
            incident=incident,
            has_collapsed=COLLAPSE in standing,
        )

    def _compute_target(self, run_id: int) -> None:
        """Read the first steps' rows; the target is final once all are stored, as a pass may precede its rows."""
        rows = self._history.batches_after(run_id, 0, limit=FIRST_ROWS)
        first_rows: dict[tuple[int, int], BatchRow] = {}
        for row in rows:
            step = (row.key.attempt_id, row.key.step)
            if step not in first_rows or first_rows[step].key.update is not None:
                first_rows[step] = row
        self._target = ess_target(list(first_rows.values())[:TARGET_STEPS])
        self._is_target_final = len(first_rows) >= TARGET_STEPS or len(rows) == FIRST_ROWS
