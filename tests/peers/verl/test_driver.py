"""Drivers of verl 0.9.1 with stub workers, as the plugin reports them."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.tracking import Tracking

from tests.client.integrations.rollouts import checkpoints
from tests.client.server import Peer
from tests.fixtures.waiting import eventually
from tests.peers.verl import drivers, fully_async
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals
from trmon_client.integrations.verl.hooks import TrackingHooks


def columns_of(server: Peer, *, n: int = 1) -> list[Columns]:
    """Return the columns of the first reports."""
    return [wire.unpack_columns(report) for report in server.wait_for(wire.Report, n=n)]


def test_a_report_holds_what_verl_logs_and_the_rows_that_verl_rejects(server: Peer) -> None:
    trainer = drivers.separate(drivers.config(rollout_rs="seq_mean_k1", rollout_rs_threshold="0.99_1.01"))
    metrics = drivers.train_on(trainer)
    assert metrics["rollout_corr/rollout_rs_seq_mean_k1_masked_fraction"] > 0
    trainer.logger.log(data={**metrics, "a text": "no number"}, step=1)
    (columns,) = columns_of(server)
    (report,) = server.of(wire.Report)
    assert (report.step, report.update, report.chunks) == (1, None, 1)
    found = batch_signals.compute(columns)
    names = {"kl": "mismatch_kl_k1", "k3_kl": "mismatch_kl_k3", "training_ppl": "ppl_old", "rollout_ppl": "ppl_rollout"}
    expected = {mine: metrics[f"rollout_corr/{name}"] for name, mine in names.items()}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert columns["n_tokens"].tolist() == list(drivers.LENGTHS)
    assert columns["n_four_grams"].tolist() == [max(n - 3, 0) for n in drivers.LENGTHS]
    assert columns["reward"].tolist() == pytest.approx(drivers.SCORES)
    assert columns["advantage"].shape == (len(drivers.LENGTHS),)
    assert [columns["group_id"].tolist().count(label) for label in columns["group_id"]] == [2, 2, 2, 2]
    (scalars,) = server.wait_for(wire.Scalars)
    assert (scalars.step, scalars.values["actor/grad_norm"]) == (1, pytest.approx(1.5))
    assert scalars.values == pytest.approx(metrics, nan_ok=True)


def test_checkpoints_are_reported_and_one_is_saved_at_a_warning(
    server: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRMON_CHECKPOINT_ON_WARNING", "1")
    values = drivers.config()
    values.trainer.default_local_dir, values.trainer.save_freq = str(tmp_path), 10
    trainer = drivers.separate(values)
    monkeypatch.setattr(
        drivers.Workers, "save_checkpoint", lambda _, path, *_more, **__: Path(path).mkdir(parents=True), raising=False
    )
    trainer.train_dataloader = SimpleNamespace(state_dict=dict)
    trainer.is_last_step, trainer.max_steps_duration, trainer.timing_raw = False, 0.0, {}
    for step in (9, 10, 11, 12):
        trainer.global_steps = step
        if step == 11:
            trainer.logger.trmon_monitor.advice_cache.update({"step": 10, "save_checkpoint": True})
        trainer._fit_save_checkpoint()
    assert checkpoints(server, n_pauses=4) == [(step, f"{tmp_path}/global_step_{step}") for step in (10, 11)]
    (tmp_path / "global_step_10/actor").rmdir()
    trainer.global_steps = 20
    trainer._fit_save_checkpoint()
    last = server.wait_for(wire.Pause, n=6)[-1]
    assert last.checkpoint.deleted == [10], "its folder is still there, with the state of the data"


def test_the_run_has_verls_names_and_configuration_without_secrets(server: Peer) -> None:
    values = drivers.config()
    values.trainer.wandb_proxy = "http://user:secret-of-wandb@proxy.test"
    trainer = drivers.separate(values)
    trainer.logger.log(data={"actor/pg_loss": 0.5}, step=1)
    (start,) = server.wait_for(wire.Start)
    assert (start.project, start.run) == ("math-of-verl", "tiny")
    assert start.config["framework"] == "verl 0.9.1"
    assert start.config["algorithm"]["adv_estimator"] == "grpo"
    assert "secret-of-wandb" not in str(start.config)


@pytest.mark.parametrize(
    "config",
    [OmegaConf.to_container(OmegaConf.load(drivers.CONFIG.with_name("sft_trainer_engine.yaml"))), None],
    ids=["SFT", "no configuration"],
)
def test_a_trainer_without_rollouts_is_a_run_by_scalars(config: Any, server: Peer) -> None:
    tracking = Tracking("math of verl", "sft", default_backend=["console"], config=config)
    tracking.log(data={"train/loss": 0.5, "train/grad_norm": 1.5}, step=3)
    (scalars,), (start,) = server.wait_for(wire.Scalars), server.of(wire.Start)
    assert (start.project, start.run, start.config["framework"]) == ("math-of-verl", "sft", "verl 0.9.1")
    assert (scalars.step, scalars.values) == (3, {"train/loss": 0.5, "train/grad_norm": 1.5})


def test_in_bypass_mode_the_samplers_log_probs_are_not_taken_for_the_trainers(server: Peer) -> None:
    trainer = drivers.separate(drivers.config(bypass_mode=True))
    drivers.train_on(trainer)
    (columns,) = columns_of(server)
    assert not columns.pairs
    assert columns["reward"].tolist() == pytest.approx(drivers.SCORES)
    assert columns["n_tokens"].tolist() == list(drivers.LENGTHS)


@pytest.mark.parametrize("trainer_class", [PPOTrainerSync, PPOTrainerColocateAsync, PPOTrainerSeparateAsync])
def test_batches_of_v1_are_chunks_of_a_step_without_their_padding(
    trainer_class: type, server: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_batches = 2 if trainer_class is PPOTrainerSeparateAsync else 1
    versions = [4, 4, 3, 4]
    trainer = drivers.v1(drivers.config(), trainer_class=trainer_class)
    trainer.parameter_sync_step = n_batches
    metrics: dict[str, Any] = {}
    for trainer.local_trigger_step in range(n_batches):
        batch = drivers.v1_batch(versions=versions, monkeypatch=monkeypatch)
        trainer._compute_advantage(trainer._compute_old_log_prob(batch, metrics), metrics)
    found = columns_of(server, n=n_batches)
    keys = [(report.step, report.chunk, report.chunks, report.trainer_version) for report in server.of(wire.Report)]
    assert keys == [(5, chunk, n_batches, 4) for chunk in range(n_batches)]
    for columns in found:
        assert columns["n_tokens"].tolist() == list(drivers.LENGTHS[:3])
        assert columns["version_min"].tolist() == [4, 4, 3]
        assert columns["reward"].tolist() == pytest.approx(drivers.SCORES[:3])
        signals = batch_signals.compute(columns)
        assert signals["mismatch_prob_diff_max"] == pytest.approx(metrics["training/rollout_probs_diff_max"], rel=1e-4)


def test_batches_of_the_fully_asynchronous_trainer_are_chunks_of_the_version_that_it_sends_next(
    server: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fully_async.trainer_globals(), "ray", fully_async.LocalRay)
    trainer = fully_async.StubbedTrainer(versions=[0, 0, 0, 1])
    asyncio.run(trainer.fit())
    found = columns_of(server, n=4)
    keys = [(report.step, report.chunk, report.chunks, report.trainer_version) for report in server.of(wire.Report)]
    assert keys == [(1, 0, 2, 0), (1, 1, 2, 0), (2, 0, 2, 1), (2, 1, 2, 1)]
    assert [columns["version_min"].tolist() for columns in found] == [[0] * 4, [0] * 4, [0] * 4, [1] * 4]
    assert all(columns["n_tokens"].tolist() == list(drivers.LENGTHS) for columns in found)
    server.wait_until(lambda peer: {scalars.step for scalars in peer.of(wire.Scalars)} == {1, 2})
    scalars = {name for scalars in server.of(wire.Scalars) for name in scalars.values}
    assert {"actor/grad_norm", "training/rollout_probs_diff_max", "fully_async/count/current_param_version"} <= scalars


def test_enforce_observes_and_says_so_once(
    server: Peer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRMON_MODE", "enforce")
    expected = drivers.train_on(drivers.separate(drivers.config()))
    for _ in range(2):
        assert drivers.train_on(drivers.separate(drivers.config())) == pytest.approx(expected, nan_ok=True)
    assert {start.mode for start in server.wait_for(wire.Start)} == {"observe"}
    assert capfd.readouterr().err.count("trmon does not change the loss of verl: mode observe") == 1


def end_with_failure(trainer: Any) -> None:
    """Fail as in `TaskRunnerV1.run`, which finishes the logger with a code."""
    try:
        raise RuntimeError("no memory left")
    finally:
        trainer.logger.finish(exit_code=1)


def test_a_failed_run_has_its_error_and_a_normal_end_is_closed(server: Peer) -> None:
    failing = drivers.separate(drivers.config())
    failing.logger.log(data={"actor/pg_loss": 0.5}, step=1)
    with pytest.raises(RuntimeError, match="no memory"):
        end_with_failure(failing)
    server.wait_for(wire.Finish)
    ended = drivers.separate(drivers.config())
    ended.logger.log(data={"actor/pg_loss": 0.5}, step=1)
    ended.logger.finish(exit_code=0)
    crash, end = server.wait_for(wire.Finish, n=2)
    assert "no memory left" in str(crash)
    assert end.reason == wire.EndReason.CLOSED


def test_training_goes_on_where_a_batch_cannot_be_reported(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    expected = drivers.train_on(drivers.separate(drivers.config()))
    trainer = drivers.separate(drivers.config())
    trainer.parameter_sync_step = "two"
    assert drivers.train_on(trainer) == pytest.approx(expected, nan_ok=True)
    assert capfd.readouterr().err.count("chunks must be a whole number") == 1


RUN = "/api/v1/runs/math/tiny"
STEPS, ILL_FROM = 90, 40
HEALTHY = {
    "critic/score/mean": 0.8,
    "actor/entropy": 0.7,
    "actor/grad_norm": 1.0,
    "response_length/mean": 90.0,
    "response_length/clip_ratio": 0.0,
}


@pytest.mark.parametrize(
    ("cause", "ill"),
    [
        ("reward_collapse", {"critic/score/mean": 0.1}),
        ("cut_at_limit", {"response_length/clip_ratio": 0.7}),
        ("not_a_number", {"actor/grad_norm": math.nan}),
    ],
)
def test_what_verl_logs_is_found(
    hooks: TrackingHooks,
    service: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cause: str,
    ill: dict[str, float],
) -> None:
    monkeypatch.setenv("TRMON_URL", str(service.base_url).rstrip("/"))
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("TRMON_PROJECT", "math")
    monkeypatch.setenv("TRMON_RUN", "tiny")
    tracking = drivers.tracking(drivers.config())
    for step in range(STEPS):
        tracking.log({**HEALTHY, **(ill if step >= ILL_FROM else {})}, step=step)
    # The end waits 2 s for what is not sent yet; a machine may be too busy for all steps at once.
    eventually(
        lambda: service.get(RUN).json().get("last_step"), lambda step: (step or 0) >= STEPS - 2, timeout_seconds=90.0
    )
    tracking.finish(exit_code=0)
    run = eventually(lambda: service.get(RUN).json(), lambda run: run["state"] == "finished")
    assert run["incident"]["cause"] == cause
    assert ILL_FROM <= run["incident"]["since_step"] < STEPS


REPORT = """
import sys
import verl
from verl.utils.tracking import Tracking
print("trmon_client.monitor" in sys.modules, hasattr(Tracking.log, "__wrapped__"))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("url", "found"), [("", "False False"), ("http://127.0.0.1:9", "True True")])
def test_verl_loads_the_plugin_which_is_inert_without_a_url(url: str, found: str) -> None:
    environment = {**os.environ, "TRMON_URL": url}
    done = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == found
