"""The recorder: what it holds, when it writes, what the files are, and that it never harms the trainer."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tests.client.process.test_exit_hooks import TERMINATE, run
from tests.client.server import Peer
from tests.client.trainer import batch, settings
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.recording_format import INDEX_FILE, Recording
from trmon_client.monitor import Monitor
from trmon_client.recording import UNFINISHED


def recording_monitor(tmp_path: Path, **given: Any) -> Monitor:
    return Monitor(settings(tmp_path, record_dir=tmp_path / "recordings", **given))


def recordings(tmp_path: Path) -> list[tuple[Path, Recording]]:
    """Return the finished recordings of run math/grpo, oldest first."""
    found = sorted((tmp_path / "recordings" / "math" / "grpo").glob(f"*/{INDEX_FILE}"))
    found = [path for path in found if path.parent.suffix != UNFINISHED]
    return [(path.parent, msgspec.json.decode(path.read_bytes(), type=Recording)) for path in found]


def steps(recording: Recording) -> list[int]:
    return [call.step for call in recording.calls]


def test_nothing_is_kept_or_written_unless_asked(tmp_path: Path) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        monitor.log_batch(step=0, **batch(), texts=["a"] * 4)
        assert monitor._current_session()._recorder is None
    assert not (tmp_path / "recordings").exists()


def test_the_last_steps_are_written_at_the_end_with_what_the_trainer_gave_for_its_owner(tmp_path: Path) -> None:
    labels = {"rewards": [1.0, 0.0, 0.5, 0.2], "group_ids": [3, 3, 4, 4], "versions": [7, 7, 7, 6]}
    given = {**batch(far=(1,)), **labels, "token_ids": np.arange(24).reshape(4, 6)}
    with recording_monitor(tmp_path, record_steps=2, policy="trm_max") as monitor:
        for step in range(5):
            decision = monitor.log_batch(step=step, trainer_version=8, **given)
    [(folder, recording)] = recordings(tmp_path)
    assert (recording.project, recording.run, recording.rank, recording.reason) == ("math", "grpo", 0, "closed")
    assert steps(recording) == [3, 4]
    call = recording.calls[-1]
    assert (call.update, call.chunk, call.trainer_version, call.kl_is) == (None, 0, 8, "sampled")
    assert call.policy == decision.policy.spec()
    with np.load(folder / call.file) as arrays:
        for name in given.keys() - {"group_ids"}:
            np.testing.assert_array_equal(arrays[name], given[name], err_msg=name)
        assert arrays["accepted"].tolist() == decision.accepted.tolist() == [True, False, True, True]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_tensor_that_the_trainer_changes_afterwards_is_recorded_as_it_was(tmp_path: Path) -> None:
    given = {name: torch.from_numpy(value) for name, value in batch().items()}
    before = given["logprobs"].clone()
    with recording_monitor(tmp_path) as monitor:
        monitor.log_batch(step=0, **given)
        given["logprobs"].zero_()
    [(folder, recording)] = recordings(tmp_path)
    assert (np.load(folder / recording.calls[0].file)["logprobs"] == before.numpy()).all()


@pytest.mark.parametrize("form", ["packed", "ragged"])
def test_packed_and_ragged_tokens_are_recorded_padded(tmp_path: Path, form: str) -> None:
    rows = [np.full(3, -1.0), np.full(5, -2.0)]
    ids = [np.arange(3), np.arange(5)]
    given: dict[str, Any] = {"rollout_logprobs": rows, "logprobs": rows, "token_ids": ids}
    if form == "packed":
        given = {name: np.concatenate(value) for name, value in given.items()} | {"cu_seqlens": [0, 3, 8]}
    with recording_monitor(tmp_path) as monitor:
        monitor.log_batch(step=0, **given)
    [(folder, recording)] = recordings(tmp_path)
    with np.load(folder / recording.calls[0].file) as arrays:
        assert arrays["mask"].sum(axis=1).tolist() == [3, 5]
        assert arrays["token_ids"].tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]


def test_an_incident_writes_at_once_and_the_end_only_what_came_after(tmp_path: Path) -> None:
    def acknowledge(message: Any) -> wire.Ack:
        since = 1 if getattr(message, "step", -1) >= 2 else None
        return wire.Ack("stored", advice={"step": 2, "incident_since": since})

    with Peer(acknowledge=acknowledge) as peer, recording_monitor(tmp_path, url=peer.url) as monitor:
        for step in range(3):
            monitor.log_batch(step=step, **batch())
        peer.wait_until(lambda peer: 2 in peer.steps)
        [(_, first)] = eventually(lambda: recordings(tmp_path))
        monitor.log_batch(step=3, **batch())
        monitor.log_batch(step=4, **batch())
    (_, first), (_, last) = recordings(tmp_path)
    assert (first.reason, first.incident_since, steps(first)) == ("incident", 1, [0, 1, 2])
    assert (last.reason, steps(last)) == ("closed", [3, 4])


@pytest.mark.parametrize(("reason", "end"), [("exited", ""), ("signal", TERMINATE)])
@pytest.mark.slow
def test_the_end_of_a_process_writes_whatever_ends_it(tmp_path: Path, reason: str, end: str) -> None:
    variables = {"TRMON_RECORD_DIR": str(tmp_path / "recordings"), "TRMON_RECORD_STEPS": "2"}
    done = run(tmp_path, f"for step in (1, 2):\n    log(monitor, step)\n{end}", **variables)
    [(_, recording)] = recordings(tmp_path)
    assert (recording.reason, steps(recording)) == (reason, [1, 2])
    assert "the last steps are recorded in" in done.stderr


def test_the_best_the_worst_and_a_random_text_are_recorded_on_request(tmp_path: Path) -> None:
    with recording_monitor(tmp_path / "without") as monitor:
        monitor.log_batch(step=0, **batch(), texts=list("abcd"))
    [(_, recording)] = recordings(tmp_path / "without")
    assert recording.calls[0].texts == ()
    with recording_monitor(tmp_path, record_texts=True) as monitor:
        monitor.log_batch(step=0, **batch(), texts=["a", "b", "c", "d" * 99_999], rewards=[0.5, np.nan, 0.1, 0.9])
    [(_, recording)] = recordings(tmp_path)
    by_choice = {sample.choice: sample for sample in recording.calls[0].texts}
    assert by_choice["best"].text == "d" * 16_384
    assert by_choice["worst"].sequence == 1
    assert by_choice["random"].text[0] == "abcd"[by_choice["random"].sequence]


def test_memory_has_a_limit(tmp_path: Path) -> None:
    one_call = 3 * 4 * 6 * 8 + 4
    with recording_monitor(tmp_path, limits={"record_bytes": 2 * one_call}) as monitor:
        for step in range(6):
            monitor.log_batch(step=step, **batch())
    [(_, recording)] = recordings(tmp_path)
    assert steps(recording) in ([4, 5], [3, 4, 5])


def test_the_oldest_recordings_are_deleted_beyond_the_limit_of_the_disk(tmp_path: Path) -> None:
    for _ in range(4):
        with recording_monitor(tmp_path, limits={"record_disk_bytes": 24_000}) as monitor:
            for step in range(2):
                monitor.log_batch(step=step, **batch())
    found = recordings(tmp_path)
    assert 1 <= len(found) < 4
    assert sum(path.stat().st_size for folder, _ in found for path in folder.iterdir()) <= 24_000


def test_a_disk_that_cannot_be_written_harms_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recordings").write_text("a file, where a folder should be")
    with Peer() as peer, recording_monitor(tmp_path, url=peer.url) as monitor:
        assert monitor.log_batch(step=0, **batch()).mask.all()
    assert peer.steps == [0]
    assert capsys.readouterr().err.count("a call failed and was not reported: NotADirectoryError") == 1


def test_what_cannot_be_recorded_is_still_decided_and_reported(tmp_path: Path) -> None:
    with Peer() as peer, recording_monitor(tmp_path, url=peer.url, record_texts=True) as monitor:
        decision = monitor.log_batch(step=0, **batch(far=(2,)), texts=9)
        assert decision.verdict is not None
    assert peer.steps == [0]
    assert recordings(tmp_path) == []


def test_a_recording_that_was_not_finished_is_removed_by_the_next(tmp_path: Path) -> None:
    torn = tmp_path / "recordings" / "math" / "grpo" / "rank0-20200101T000000-incident.partial"
    torn.mkdir(parents=True)
    with recording_monitor(tmp_path) as monitor:
        monitor.log_batch(step=0, **batch())
    assert not torn.exists()
    assert len(recordings(tmp_path)) == 1
