"""Computes the advice for one run after its newest gauge row; advice is not stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trmon.domain.advice.advise import TARGET_STEPS, Advice, KlTarget, LrDecay, advise, ess_target, lr_decay
from trmon.domain.advice.stopping import stops_on_collapse
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.ports import RunLog
from trmon.domain.runs.run import Run

FIRST_ROWS = 256
"""How many of a run's first batches are searched for its first gauge rows."""


class Advisor:
    """Remembers the effective sample size of a run's first steps, and its last advice to cut the learning rate.

    After a restart of the service the same cut may be advised again within its 100 steps; the trainer's optimizer
    knows whether it was made.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._target = math.nan
        self._is_target_final = False
        self._decay: LrDecay | None = None

    def add_row(self, row: BatchRow) -> None:
        """Add a gauge row."""
        growth = row.signals.get("response_length_growth", math.nan)
        self._decay = lr_decay(growth, step=row.key.step, last=self._decay)

    def advice(
        self,
        row: BatchRow | None,
        *,
        run: Run,
        steps: int,
        alerts: Sequence[Alert],
        collapses: Sequence[Alert] = (),
        incident: Alert | None = None,
    ) -> Advice | None:
        """Return the advice after the newest gauge row; None before the first.

        Args: steps: how many the run has had; alerts: firing ones that page over batches; collapses: those of findings
        that end a run that opted in; incident: the open one.
        """
        if row is None:
            return None
        if not self._is_target_final and steps > TARGET_STEPS:
            self._compute_target(run.id)
        return advise(
            row,
            target=self._target,
            decay=self._decay,
            kl_target=KlTarget.of(run.config),
            alerts=alerts,
            collapses=collapses if stops_on_collapse(run.config) else (),
            incident=incident,
        )

    def _compute_target(self, run_id: int) -> None:
        """Read the first steps' rows; the target is final once all are stored, as a pass may precede its rows."""
        rows = self._log.batches_after(run_id, 0, limit=FIRST_ROWS)
        first_rows: dict[tuple[int, int], BatchRow] = {}
        for row in rows:
            step = (row.key.attempt_id, row.key.step)
            if step not in first_rows or first_rows[step].key.update is not None:
                first_rows[step] = row
        self._target = ess_target(list(first_rows.values())[:TARGET_STEPS])
        self._is_target_final = len(first_rows) >= TARGET_STEPS or len(rows) == FIRST_ROWS
