"""Lines such as `Step 3 | 12.3s | Loss 0.1234 | Mismatch KL 0.0012`, as prime-rl prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.domain.analysis.logged_steps import LogRow

_START = re.compile(r"\bStep (\d+) \|")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z. -]*?)\s+([-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)\b")
NAMES = {
    "Loss": "loss/mean",
    "Entropy": "entropy/all/mean",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "Reward": "train/agg/effective/reward/mean",
    "Max Off-Policy": "off_policy/max",
}
"""The metrics that prime-rl prints, and their names in its other logs."""


class PipedFields:
    """A line is a row; the trainer and the orchestrator print one each."""

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row of a line, if it is one."""
        found = _START.search(line)
        if found is None:
            return
        fields = (_FIELD.match(field) for field in line[found.end() :].split("|"))
        row = {NAMES[field[1]]: field[2] for field in fields if field is not None and field[1] in NAMES}
        if row:
            yield LogRow({"step": found.group(1), **row}, number)

    def finish(self) -> Iterator[LogRow]:
        """Yield nothing: no row spans lines."""
        return iter(())
