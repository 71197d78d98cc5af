"""Bullets under a heading `==== Step 3/100 ====`, as NeMo-RL prints the results of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.domain.analysis.logged_steps import LogRow

_HEADING = re.compile(r"={5,} Step (\d+)/\d+ ={5,}")
_BULLET = re.compile(r"•\s*([A-Za-z ]+):\s*([-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)")
NAMES = {
    "Loss": "loss",
    "Generation KL Error": "gen_kl_error",
    "Avg Reward": "reward",
    "Avg Total Reward": "reward",
    "Mean Generation Length": "mean_gen_tokens_per_sample",
    "Total step time": "timing/train/total_step_time",
}
"""The metrics that NeMo-RL prints, and their names in its other logs."""


class BulletList:
    """The bullets between two headings are a row."""

    def __init__(self) -> None:
        self._row: dict[str, object] = {}
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a new heading ends."""
        heading = _HEADING.search(line)
        if heading is not None:
            yield from self.finish()
            self._row, self._line = {"step": heading.group(1)}, number
            return
        bullet = _BULLET.search(line)
        if bullet is not None and self._row and bullet[1] in NAMES:
            self._row.setdefault(NAMES[bullet[1]], bullet[2])

    def finish(self) -> Iterator[LogRow]:
        """Yield the last row."""
        row, self._row = self._row, {}
        if len(row) > 1:
            yield LogRow(row, self._line)
