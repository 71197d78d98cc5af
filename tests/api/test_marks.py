"""Restarts and changes of a run's configuration and learning rate over HTTP."""

from __future__ import annotations

import msgspec

from tests.fixtures.messages import ORIGIN
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
