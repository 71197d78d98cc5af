"""Messages that report one rule on several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trmon.domain.alerts.notification import Notification


def run_names(notifications: Sequence[Notification]) -> tuple[str, ...]:
    """Return the runs of notifications as "project/run", each once, in order."""
    return tuple(dict.fromkeys(f"{one.run.project}/{one.run.run}" for one in notifications))


def merged_summary(notifications: Sequence[Notification]) -> str:
    """Return how many runs a merged message reports, e.g. "12 runs stalled within 31 s"."""
    count, rule = len(run_names(notifications)), notifications[0].alert.rule
    if not notifications[0].is_firing:
        return f"{count} runs are no longer {rule}"
    times = [notification.alert.at for notification in notifications]
    return f"{count} runs {rule} within {max(1, math.ceil(max(times) - min(times)))} s"
