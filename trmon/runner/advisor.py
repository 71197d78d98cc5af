"""The advisor of one run: what is advised after its newest gauge row; nothing of it is stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trmon.domain.advice.advise import TARGET_STEPS, Advice, KlTarget, LrDecay, advise, ess_target, lr_decay
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.ports import RunLog
from trmon.domain.runs.run import Run

FIRST_ROWS = 256
"""Among so many of a run's first batches its first gauge rows are looked for."""


class Advisor:
    """Remembers what the run was like at its start, and when its learning rate was last to be cut.

    After a restart of the service a cut may be advised again within its 100 steps; the trainer's optimizer knows.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._target = math.nan
        self._is_settled = False
        self._decay: LrDecay | None = None

    def heed(self, row: BatchRow) -> None:
        """Take a gauge row in."""
        growth = row.signals.get("response_length_growth", math.nan)
        self._decay = lr_decay(growth, step=row.key.step, last=self._decay)

    def advice(self, row: BatchRow | None, *, run: Run, steps: int, alerts: Sequence[Alert]) -> Advice | None:
        """Return what is advised after the newest gauge row; None before the first.

        Args: steps: how many the run has had; alerts: firing ones that page over batches.
        """
        if row is None:
            return None
        if not self._is_settled and steps > TARGET_STEPS:
            self._settle(run.id)
        return advise(row, target=self._target, decay=self._decay, kl_target=KlTarget.of(run.config), alerts=alerts)

    def _settle(self, run_id: int) -> None:
        """Look what the run was like at its start, until all its first rows are there: a pass may precede its rows."""
        rows = self._log.batches_after(run_id, 0, limit=FIRST_ROWS)
        chosen: dict[tuple[int, int], BatchRow] = {}
        for row in rows:
            place = (row.key.attempt_id, row.key.step)
            if place not in chosen or chosen[place].key.update is not None:
                chosen[place] = row
        self._target = ess_target(list(chosen.values())[:TARGET_STEPS])
        self._is_settled = len(chosen) >= TARGET_STEPS or len(rows) == FIRST_ROWS
