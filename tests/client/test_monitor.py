"""A trainer's calls against a working service."""

from __future__ import annotations

import copy
import pickle
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from tests.client.server import Peer
from tests.client.trainer import batch, settings, spooled, steps
from trmon_client.core import wire
from trmon_client.error_guard import RejectedSteps, WarnOnce
from trmon_client.monitor import Monitor


def test_a_run_is_a_start_its_reports_and_a_finish(tmp_path: Path) -> None:
    with Peer() as peer:
        with Monitor(settings(tmp_path, url=peer.url, owner="me", tags=["dapo"], config={"lr": 1e-6})) as monitor:
            monitor.log_batch(step=0, **batch(), rewards=[1.0, 0.0, 1.0, 0.5], scalars={"grad_norm": 0.3})
            monitor.log_scalars(0, {"lr": np.float32(0.5)})
            monitor.pause("evaluation")
        start, report, scalars, pause, finish = peer.messages
    launch = start.config.pop("launch")
    assert (start.owner, start.tags, start.config, start.policy) == ("me", ["dapo"], {"lr": 1e-6}, None)
    assert (launch["host"], launch["command"].split()[0]) == (socket.gethostname(), Path(sys.argv[0]).name)
    assert start.attempt_is_local
    assert not start.ranks_unverified
    assert (report.step, report.update, report.chunk, report.mode) == (0, None, 0, "observe")
    assert report.scalars == {"grad_norm": 0.3}
    assert wire.unpack_columns(report)["reward"].tolist() == [1.0, 0.0, 1.0, 0.5]
    assert (scalars.step, scalars.values) == (0, {"lr": 0.5})
    assert pause.reason == "evaluation"
    assert (finish.outcome, finish.finished) == ("finished", [wire.ChunkCount(0, None, 1)])
    assert (finish.losses.dropped, finish.losses.warnings) == ({}, {})
    assert [message.sequence for message in (start, scalars, pause, finish)] == sorted(
        message.sequence for message in (start, scalars, pause, finish)
    )
    assert {(m.project, m.run, m.attempt, m.launch, m.rank, m.world_size) for m in peer.messages} == {
        ("math", "grpo", start.attempt, start.launch, 0, 1)
    }
    assert not (tmp_path / "spool").exists()


def test_a_report_contains_the_decision_and_the_policy(tmp_path: Path) -> None:
    with Monitor(settings(tmp_path, policy="trm_max")) as monitor:
        decision = monitor.log_batch(step=3, update=1, **batch(far=(1,), dead=(2,)))
    start, report, _ = spooled(tmp_path)
    assert report.policy == decision.policy.hash
    assert start.policy == decision.policy.spec()
    assert wire.unpack_bits(report.accepted, 4).tolist() == decision.accepted.tolist() == [True, False, False, True]
    assert decision.reasons[1:3] == ["max_binary_kl", "invalid_logprobs"]
    assert (decision.mask_rate, decision.signals["invalid_fraction"]) == (0.5, 0.25)


def test_micro_batches_are_numbered_and_counted(tmp_path: Path) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        for step, update in ((0, None), (0, None), (0, 0), (0, 0), (0, 0), (1, None)):
            monitor.log_batch(step=step, update=update, **batch())
    _, *reports, finish = spooled(tmp_path)
    assert [report.chunk for report in reports] == [0, 1, 0, 1, 2, 0]
    stated = [list(report.finished) for report in reports]
    assert stated == [[], [], [wire.ChunkCount(0, None, 2)], [], [], [wire.ChunkCount(0, 0, 3)]]
    assert finish.finished == [wire.ChunkCount(1, None, 1)]


@pytest.mark.parametrize(("mode", "far", "told"), [("enforce", 4, 1), ("enforce", 3, 0), ("observe", 4, 0)])
def test_the_console_says_that_an_enforced_policy_rejects_every_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, far: int, told: int
) -> None:
    with Monitor(settings(tmp_path, mode=mode)) as monitor:
        for step in range(6):
            monitor.log_batch(step=step, **batch(far=tuple(range(far))))
    assert capsys.readouterr().err.count("rejected every sequence of the last 5 steps (step 4)") == told


def test_the_console_repeats_it_every_hundred_steps_until_a_good_one(capsys: pytest.CaptureFixture[str]) -> None:
    rejected = RejectedSteps(WarnOnce())
    for step in range(300):
        for chunk in range(2):
            accepted = step == 150 and chunk == 1
            rejected.see(step, n_sequences=8, n_accepted=int(accepted), policy="trm")
    lines = [line for line in capsys.readouterr().err.splitlines() if "rejected every sequence" in line]
    assert [re.findall(r"\d+", line) for line in lines] == [["5", "4"], ["105", "104"], ["5", "155"], ["105", "255"]]


def test_off_mode_creates_no_thread_no_file_and_no_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with Monitor(settings(tmp_path, environment={"TRMON_MODE": "off"}, mode="enforce")) as monitor:
        decision = monitor.log_batch(step=0, **batch(dead=(0,)))
        monitor.log_batch(step=-1, mask=None)
        monitor.log_scalars(0, {"lr": 1.0})
        assert set(threading.enumerate()) <= before
    assert decision.mask.tolist() == [True] * 4
    assert (decision.policy, decision.reasons, decision.signals) == (None, None, {})
    assert not (tmp_path / "spool").exists()
    assert capsys.readouterr().err == ""


MISTAKES = {
    "log-probs of whole numbers": {"logprobs": np.ones((4, 6), int)},
    "a step below zero": {"step": -1},
    "a step that is no whole number": {"step": 0.5},
    "no chunk": {"chunks": 0},
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_raises_on_the_first_call_only(tmp_path: Path, mistake: dict[str, object]) -> None:
    arguments = {"step": 0, **batch(), **mistake}
    first = Monitor(settings(tmp_path, mode="enforce"))
    with pytest.raises(ValueError, match=next(iter(mistake))):
        first.log_batch(**arguments)
    assert first.log_batch(**arguments).mask.tolist() == [True] * 4

    second = Monitor(settings(tmp_path, mode="enforce"))
    second.log_batch(step=0, **batch())
    neutral = second.log_batch(**arguments)
    assert neutral.mask.tolist() == [True] * 4
    assert (neutral.policy, neutral.reasons) == (None, None)
    second.log_batch(step=1, **batch())
    second.close()
    assert steps(spooled(tmp_path)) == [0, 1]
    assert spooled(tmp_path)[-1].losses.dropped == {"internal": 1}


class Meter:
    """A number of the trainer's own that changes."""

    value = 0.5

    def __float__(self) -> float:
        return self.value


class Raising:
    """A number whose conversion raises."""

    def __float__(self) -> float:
        raise KeyError("???")


def test_a_scalar_is_any_single_number_as_it_was_and_others_are_left_out_and_counted(tmp_path: Path) -> None:
    meter, flat, alone = Meter(), np.array([1.0]), np.array(2.0)
    norm = torch.tensor(0.25, requires_grad=True)
    numbers = {"norm": norm, "loss": float("nan"), "off": True, "meter": meter, "flat": flat, "alone": alone}
    others = {"note": "high", "shape": [1, 2], "": 1.0, "raises": Raising(), "two": np.ones(2)}
    monitor = Monitor(settings(tmp_path))
    monitor.log_batch(step=0, **batch(), scalars=numbers | others)
    monitor.log_scalars(0, {f"name-{i}": i for i in range(wire.MAX_SCALARS + 2)})
    meter.value = flat[...] = alone[...] = 99.0
    monitor.close()
    _, report, scalars, finish = spooled(tmp_path)
    assert np.isnan(report.scalars.pop("loss"))
    assert report.scalars == {"norm": 0.25, "off": 1.0, "meter": 0.5, "flat": 1.0, "alone": 2.0}
    assert len(scalars.values) == wire.MAX_SCALARS
    assert finish.losses.dropped == {"scalar": len(others) + 2}


def test_numbers_without_a_step_belong_to_the_newest_batch_or_are_counted(tmp_path: Path) -> None:
    counting = Monitor(settings(tmp_path / "counting"))
    for _ in range(2):
        counting.log({"reward": 1.0})
    counting.log({"reward": 1.0}, step=7)
    counting.log({"reward": 1.0})
    counting.close()
    assert [message.step for message in spooled(tmp_path / "counting")[1:-1]] == [0, 1, 7, 8]
    monitor = Monitor(settings(tmp_path / "batches"))
    monitor.log_batch(step=3, **batch())
    for _ in range(2):
        monitor.log({"reward": 1.0})
    monitor.close()
    assert [message.step for message in spooled(tmp_path / "batches")[1:-1]] == [3, 3, 3]


def test_a_monitor_and_its_decisions_show_as_one_line(tmp_path: Path) -> None:
    monitor = Monitor(settings(tmp_path, url="http://127.0.0.1:1", mode="enforce"))
    with monitor:
        decision = monitor.log_batch(step=0, **batch(far=(1,)))
    assert repr(monitor) == "<Monitor math/grpo, enforce, http://127.0.0.1:1/runs/math/grpo>"
    assert repr(decision) == "<BatchDecision of 4 sequences: 1 rejected by trm_auto, enforced>"
    assert repr(Monitor(settings(tmp_path, mode="off"))).endswith(f", off, {tmp_path}/spool/math/grpo>")
    off = Monitor(settings(tmp_path, mode="off")).log_batch(step=0, **batch())
    assert repr(off) == "<BatchDecision of 4 sequences: nothing decided>"


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """The mesh of a process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_a_sharded_scalar_is_lost_without_its_report(tmp_path: Path, mesh: DeviceMesh) -> None:
    part, whole = (DTensor.from_local(torch.tensor(2.0), mesh, [kind]) for kind in (Partial(), Replicate()))
    monitor = Monitor(settings(tmp_path))
    monitor.log_batch(step=0, **batch(), scalars={"part": part, "whole": whole})
    monitor.close()
    report, finish = spooled(tmp_path)[1:]
    assert report.scalars == {"whole": 2.0}
    assert finish.losses.dropped == {"scalar": 1}


def test_distributed_log_probs_are_refused_with_the_conversion_to_use(tmp_path: Path, mesh: DeviceMesh) -> None:
    sharded = DTensor.from_local(torch.full((2, 3), -1.0), mesh, [Shard(0)])
    with pytest.raises(ValueError, match=r"^logprobs is distributed.*to_local.*full_tensor"):
        Monitor(settings(tmp_path)).log_batch(step=0, rollout_logprobs=sharded.to_local(), logprobs=sharded)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_log_probs_are_refused_once_and_then_decided_neutrally(tmp_path: Path, layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.full((3,), -1.0), torch.full((5,), -1.0)], layout=layout)
    off, on = Monitor(settings(tmp_path, mode="off")), Monitor(settings(tmp_path))
    with pytest.raises(ValueError, match=r"^rollout_logprobs is nested.*to_padded_tensor.*unbind"):
        on.log_batch(step=0, rollout_logprobs=nested, logprobs=nested)
    for monitor in (off, on):
        assert monitor.log_batch(step=1, rollout_logprobs=nested, logprobs=nested).mask.tolist() == [True, True]
    on.log_batch(step=2, rollout_logprobs=nested.unbind(), logprobs=nested.unbind())
    on.close()
    assert steps(spooled(tmp_path)) == [2]


def test_tensors_overwritten_after_the_call_are_reported_as_they_were(tmp_path: Path) -> None:
    rewards, norm, generator = torch.ones(4, dtype=torch.float64), torch.tensor(1.0), torch.get_rng_state()
    with Monitor(settings(tmp_path, mode="enforce")) as monitor:
        decision = monitor.log_batch(step=0, **batch(), rewards=rewards, scalars={"norm": norm})
        for tensor in (rewards, norm):
            tensor.zero_()
        decision.mask[:] = False
    assert torch.equal(torch.get_rng_state(), generator), "no number is drawn from the trainer's generator"
    _, report, _ = spooled(tmp_path)
    assert wire.unpack_columns(report)["reward"].tolist() == [1.0] * 4
    assert report.scalars == {"norm": 1.0}
    assert wire.unpack_bits(report.accepted, 4).all()


def test_calls_after_close_send_nothing_and_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor(settings(tmp_path, mode="enforce", policy="trm_max"))
    before = monitor.log_batch(step=0, **batch(far=(1,))).mask.tolist()
    monitor.close()
    n_spooled = len(spooled(tmp_path))
    capsys.readouterr()
    assert monitor.log_batch(step=1, **batch(far=(1,))).mask.tolist() == before == [True, False, True, True]
    monitor.log_scalars(1, {"lr": 1.0})
    monitor.log({"lr": 1.0})
    monitor.pause("evaluation")
    monitor.close()
    assert len(spooled(tmp_path)) == n_spooled
    assert monitor.error_guard.losses.snapshot() == {"closed": 4}
    assert re.fullmatch(r"trmon: log_batch is called after close\(\), .* by the last policy\n", capsys.readouterr().err)


def test_a_run_that_never_logged_sends_nothing_unless_it_crashes(tmp_path: Path) -> None:
    with Monitor(settings(tmp_path)):
        pass
    assert spooled(tmp_path) == []
    with pytest.raises(RuntimeError), Monitor(settings(tmp_path)):
        raise RuntimeError("no data")
    _, finish = spooled(tmp_path)
    assert (finish.outcome, finish.error) == ("crashed", "RuntimeError: no data")


ENDINGS = {
    "a clean end": (None, "finished", ""),
    "an exception": (KeyError("reward"), "crashed", "KeyError: 'reward'"),
    "an exception whose text no message takes": (OSError("a\udcff\0"), "crashed", "OSError: a?\ufffd"),
    "an interrupt": (KeyboardInterrupt(), "finished", ""),
    "an exit that reports success": (SystemExit(0), "finished", ""),
    "an exit that reports failure": (SystemExit(3), "crashed", "exit code 3"),
}


@pytest.mark.parametrize(("raised", "outcome", "error"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_with_block_decides_the_outcome(
    tmp_path: Path, raised: BaseException | None, outcome: str, error: str
) -> None:
    def train() -> None:
        with Monitor(settings(tmp_path)) as monitor:
            monitor.log_batch(step=0, **batch())
            if raised is not None:
                raise raised

    if raised is None:
        train()
    else:
        with pytest.raises(type(raised)):
            train()
    finish = spooled(tmp_path)[-1]
    assert (finish.outcome, finish.error) == (outcome, error)


def test_the_first_report_prints_what_it_contains_and_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer() as peer, Monitor(settings(tmp_path, url=peer.url)) as monitor:
        for step in range(3):
            monitor.log_batch(step=step, **batch(), rewards=np.ones(4))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "trmon: math/grpo step 0; pairs total; mode observe, policy trm_auto; "
        f"missing: old_logprobs= advantages= group_ids= versions=; {peer.url}/runs/math/grpo"
    )


def test_without_a_url_rank_0_alone_names_the_spool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        monitor = Monitor(settings(tmp_path, rank=rank, world_size=2))
        monitor.log_batch(step=0, **batch())
        monitor.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "spool" / "math" / "grpo") in line
    assert steps(spooled(tmp_path)) == [0, 0]
    assert {message.rank for message in spooled(tmp_path)} == {0, 1}


def test_the_console_says_that_a_run_of_the_name_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def second(message: object) -> wire.Ack:
        return wire.Ack("stored", attempt=2 if isinstance(message, wire.Start) else 0)

    with Peer(acknowledge=second) as peer, Monitor(settings(tmp_path, url=peer.url)) as monitor:
        for step in range(2):
            monitor.log_batch(step=step, **batch())
    said = [line for line in capsys.readouterr().err.splitlines() if "attempt" in line]
    assert said == ["trmon: math/grpo exists: this is its attempt 2; a new run needs another run="]


def test_advice_reaches_rank_zero_only(tmp_path: Path) -> None:
    with Peer(acknowledge=lambda _: wire.Ack("stored", advice={"lr_scale": 0.5})) as peer:
        for rank, expected in ((0, {"lr_scale": 0.5}), (1, None)):
            with Monitor(settings(tmp_path, url=peer.url, rank=rank, world_size=2)) as monitor:
                monitor.log_batch(step=0, **batch())
                peer.wait_for(wire.Report, n=2 * rank + 1)
                monitor.pause()
                peer.wait_for(wire.Pause, n=rank + 1)
                assert monitor.log_batch(step=1, **batch()).advice == expected


def test_a_step_that_goes_back_is_said_once_and_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        for step in (5, 6, 6, 4, 3):
            monitor.log_batch(step=step, **batch())
    said = [line for line in capsys.readouterr().err.splitlines() if "after step" in line]
    assert len(said) == 1
    assert "step 4 after step 6" in said[0]
    finish = spooled(tmp_path)[-1]
    assert "step 4 after step 6" in finish.losses.warnings["step_went_back"]


def test_a_later_call_that_fails_is_said_on_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        monitor.log_batch(step=0, **batch())
        for step in range(1, 4):
            monitor.log_batch(step=step, **batch(), rewards=np.zeros(1))
    assert capsys.readouterr().err.count("was not reported: ValueError: rewards has shape (1,)") == 1
    finish = spooled(tmp_path)[-1]
    assert finish.losses.dropped == {"internal": 3}
    assert "rewards has shape (1,)" in finish.losses.warnings["failure ValueError"]


@pytest.mark.parametrize("has_batches", [False, True])
def test_a_trainer_that_logs_scalars_only_is_told_once_what_that_leaves_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, has_batches: bool
) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        for step in range(4):
            monitor.log_scalars(step, {"reward": 0.5, "entropy": 1.0, "note": "warm"})
            if has_batches:
                monitor.log_batch(step=step, **batch())
    (line,) = capsys.readouterr().err.splitlines()
    assert ("math/grpo step 1; scalars only: entropy, reward (left out, not numbers: note);" in line) is not has_batches
    assert ("agreement of the policies is not measured" in line) is not has_batches


def test_a_copy_of_the_trainer_shares_the_monitor_and_a_checkpoint_has_no_token(tmp_path: Path) -> None:
    monitor = Monitor(settings(tmp_path, token="s3cret"))
    assert copy.deepcopy({"trainer": monitor})["trainer"] is monitor
    pickled = pickle.dumps(monitor)
    assert b"s3cret" not in pickled
    assert pickle.loads(pickled).settings.run == monitor.settings.run


def test_a_checkpoint_is_reported_with_its_path_and_with_those_that_are_gone(tmp_path: Path) -> None:
    folders = [tmp_path / f"checkpoint-{step}" for step in (2, 4, 6)]
    with Peer() as peer, Monitor(settings(tmp_path, url=peer.url, token="hush-hush-hush")) as monitor:
        for step, folder in zip((2, 4, 6), folders, strict=True):
            folder.mkdir()
            monitor.checkpoint(step, folder)
            peer.wait_for(wire.Pause, n=step // 2)
            if step == 4:
                folders[0].rmdir()
        monitor.checkpoint(8, "s3://runs/8?token=hush-hush-hush")
        monitor.checkpoint(10, "s3://runs/10")
    told = [pause.checkpoint for pause in peer.of(wire.Pause)]
    (finish,) = peer.of(wire.Finish)
    assert [(one.step, one.deleted) for one in told] == [(2, []), (4, []), (6, [2]), (8, []), (10, [])]
    assert [one.path for one in told[:3]] == [str(folder) for folder in folders]
    assert [one.path for one in told[3:]] == ["s3://runs/8?token=***", "s3://runs/10"]
    assert finish.losses.dropped == {}


def test_a_path_that_is_saved_over_is_of_the_newest_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("last.pt").touch()
    with Monitor(settings(tmp_path)) as monitor:
        monitor.checkpoint(2, "last.pt")
        monitor.checkpoint(4, "last.pt")
    path, (_, *told, _) = str(tmp_path / "last.pt"), spooled(tmp_path)
    saved = [pause.checkpoint for pause in told]
    assert [(one.step, one.path, one.deleted) for one in saved] == [(2, path, []), (4, path, [2])]


def test_other_ranks_report_no_checkpoint_and_what_is_no_path_raises_nothing(tmp_path: Path) -> None:
    with Peer() as peer:
        with Monitor(settings(tmp_path, url=peer.url, rank=1, world_size=2)) as monitor:
            monitor.checkpoint(2, tmp_path)
        with Monitor(settings(tmp_path, url=peer.url, run="other")) as monitor:
            monitor.checkpoint(-1, tmp_path)
            monitor.checkpoint(3, object())  # type: ignore[arg-type]
        assert peer.of(wire.Pause) == []
        assert [finish.losses.dropped for finish in peer.of(wire.Finish)] == [{}, {"internal": 2}]


def incident(severity: str, *, opened_step: int = 4) -> wire.Ack:
    told = {"opened_step": opened_step, "severity": severity, "title": "drift"}
    return wire.Ack("stored", advice={"step": opened_step, "save_checkpoint": True, "incident": told})


def test_an_incident_is_told_once_at_a_step_boundary_in_the_trainers_thread(tmp_path: Path) -> None:
    told: list[tuple[str, threading.Thread]] = []
    with Peer(acknowledge=lambda one: incident("warn" if getattr(one, "step", 0) < 3 else "page")) as peer:
        on_incident = lambda one: told.append((one["severity"], threading.current_thread()))  # noqa: E731
        with Monitor(settings(tmp_path, url=peer.url, checkpoint_on_warning=True, on_incident=on_incident)) as monitor:
            asked = []
            for step in range(6):
                for _ in range(2):
                    asked.append(monitor.log_batch(step=step, **batch()).advice)
                    n = len(told)
                peer.wait_for(wire.Report, n=2 * step + 2)
                assert len(told) == n, "it is told between steps only"
    assert [severity for severity, _ in told] == ["warn", "page"]
    assert {thread for _, thread in told} == {threading.current_thread()}
    saving = [step // 2 for step, advice in enumerate(asked) if advice is not None and advice.save_checkpoint]
    assert len(saving) == 2
    assert len({*saving}) == 1


def test_what_on_incident_raises_is_said_once_on_any_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("no brakes")

    for ranks in ({}, {"rank": 0, "world_size": 2}):
        with Peer(acknowledge=lambda _: incident("page", opened_step=len(peer.messages))) as peer:
            with Monitor(settings(tmp_path, url=peer.url, on_incident=fails, **ranks)) as monitor:
                for step in range(5):
                    monitor.log_batch(step=step, **batch())
                    peer.wait_for(wire.Report, n=step + 1)
            (finish,) = peer.of(wire.Finish)
        said = finish.losses.warnings["on_incident"]
        assert capsys.readouterr().err.count(said) == 1
        assert ("requests_at_step" if ranks else "RuntimeError: no brakes; the training continues") in said
