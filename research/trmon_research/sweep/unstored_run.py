"""A run that no database holds, for code of the service that needs one."""

from __future__ import annotations

from typing import Any

from trmon.domain.identity import RunKey
from trmon.domain.runs.run import Run, RunState

RUN_ID, ATTEMPT_ID = 1, 1


def unstored_run(key: RunKey, *, state: RunState, config: dict[str, Any]) -> Run:
    """Return a run of one attempt, from which no report has come."""
    return Run(
        id=RUN_ID,
        key=key,
        state=state,
        owner=None,
        tags=(),
        config=config,
        mode="observe",
        created_at=0.0,
        last_report_at=None,
        last_step=None,
        attempt_id=ATTEMPT_ID,
    )
