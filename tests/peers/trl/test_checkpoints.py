"""The checkpoints that a trainer of TRL saves, reported as they are saved."""

from __future__ import annotations

from pathlib import Path

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire


def saved(received: Received) -> list[tuple[int, str, list[int]]]:
    told = [pause.checkpoint for pause in received.of(wire.Pause)]
    return [(one.step, one.path, one.deleted) for one in told if isinstance(one, wire.SavedCheckpoint)]


def test_checkpoints_are_reported_with_their_paths_and_those_that_trl_deletes(
    tmp_path: Path, received: Received
) -> None:
    trainer = tiny.grpo(tmp_path, max_steps=6, save_strategy="steps", save_steps=2, save_total_limit=2)
    received.train(received.train(trainer))
    folders = [str(tmp_path / "out" / f"checkpoint-{step}") for step in (2, 4, 6)]
    told = saved(received)
    assert [(step, path) for step, path, _ in told[:3]] == [*zip((2, 4, 6), folders, strict=True)]
    assert {step for _, _, deleted in told[:3] for step in deleted} <= {2}
    assert told[2][2] == [2]
    assert len(told) == 6, "attached twice, each checkpoint is reported once"
    assert {start.config["launch"]["reports_checkpoints"] for start in received.of(wire.Start)} == {True}
