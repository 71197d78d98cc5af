"""Runs that have ended and whose rows are all written, as a worker leaves them."""

from __future__ import annotations

from tests.store.builders import NOW, alert, alert_event, append, batch, batch_key, commit, report_intake, start_intake
from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.pipeline.run_update import Checkpoint, Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store


def put_ended_run(
    store: Store,
    name: str,
    *,
    steps: int = 3,
    n_batches: int = 0,
    project: str = "math",
    now: float = NOW,
    state: RunState | None = None,
) -> int:
    """Store a run of one attempt that ended at a time, with reports, batches, decisions and an alert; return its id.

    Args: n_batches: at least that many batches, most of them without reports.
    """
    [started] = append(store, start_intake(project, name), now=now)
    reports = append(store, *(report_intake(project, name, step=step, seed=step) for step in range(steps)), now=now)
    run_id, attempt_id = started.run_id, started.attempt_id
    keys = [batch_key(attempt_id, step) for step in range(max(steps, n_batches))]
    first = alert(run_id=run_id, attempt_id=attempt_id)
    commit(
        store,
        run_id,
        frontier=Frontier(report_id=reports[-1].id, notice_id=started.id),
        batches=[
            batch(
                key,
                run_id=run_id,
                ordinal=i + 1,
                scalars={"loss": float("nan")},
                last_report_id=reports[min(i, steps - 1)].id,
            )
            for i, key in enumerate(keys)
        ],
        decisions=[
            DecisionRow(
                key=key,
                policy_hash="p",
                policy_name="seq-trm",
                role=PolicyRole.ACTIVE,
                counts={"masked": 1},
                mask_rate=0.125,
                accepted=b"\x7f",
            )
            for key in keys
        ],
        alerts=[first],
        alert_events=[alert_event(first)],
        checkpoint=Checkpoint(ordinal=len(keys), version=1, state=b"state"),
        state=state or RunState.FINISHED,
        attempt_id=attempt_id,
        last_step=len(keys) - 1,
    )
    return run_id
