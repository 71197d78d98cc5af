"""Restarts, changes of a run's configuration and learning rate, and its checkpoints over HTTP."""

from __future__ import annotations

import msgspec

from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.running_service import OwnRun
from tests.fixtures.trainer import step_report
from tests.fixtures.waiting import eventually
from trmon_client.core import wire


def test_a_restart_and_a_jump_of_the_learning_rate_are_marks_of_their_steps(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config={"lr": 1e-3}))
    run.send(*(step_report(step) for step in range(4)))
    eventually(lambda: len(run.get("/batches")["items"]) == 3)
    again = {"attempt": "second", "launch": "launch-2"}
    run.send(wire.Start(**again, config={"lr": 2e-3}))
    for step in range(3, 9):
        scalars = {"lr": 1e-3 if step < 6 else 2e-3}
        run.send(msgspec.structs.replace(step_report(step), scalars=scalars, **again))
    eventually(lambda: run.get()["last_step"] == 8 and len(run.get("/batches")["items"]) >= 8)
    marks = {mark["step"]: (mark["kind"], mark["words"]) for mark in run.get("/marks")}
    assert marks[6] == ("change", "learning rate 0.001 → 0.002")
    assert [(step, kind) for step, (kind, _) in marks.items() if kind == "restart"] == [(3, "restart")]
    assert run.get("/marks?attempt_id=99999999") == []


def test_a_checkpoint_is_a_mark_and_the_one_to_go_back_to(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    for step in range(14):
        content = columns(seed=step, n_invalid=[1, 0, 0, 0]) if step >= 8 else None
        run.send(step_report(step, content=content))
        if step in (4, 10):
            told = wire.SavedCheckpoint(step, f"/c/{step}?token=hush-hush-hush-1")
            run.send(wire.Pause(**ORIGIN, sequence=step, checkpoint=told))
    path = "/c/4?token=***"
    remedy = eventually(lambda: run.get("/diagnosis").get("remedy") or {}, lambda known: known.get("checkpoint_step"))
    assert (remedy["checkpoint_step"], remedy["checkpoint_path"]) == (4, path)
    assert run.get()["checkpoints"] == [{"step": 4, "path": path}, {"step": 10, "path": "/c/10?token=***"}]
    assert {"step": 4, "kind": "checkpoint", "words": f"checkpoint {path}"} in run.get("/marks")
    mitigate = next(one for one in run.get("/runbook")["stages"] if one["stage"] == "mitigate")
    assert f"Checkpoint to go back to: {path} (step 4)." in mitigate["lines"]
    assert run.get()["warnings"] == []
