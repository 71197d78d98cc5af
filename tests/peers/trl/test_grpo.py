"""A GRPOTrainer with trmon attached, in real training on the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.server import Answer, Peer
from tests.client.trainer import spooled, steps
from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from tests.peers.trl.tiny import are_equal, parameters_of
from trmon_client.core import wire
from trmon_client.core.signals import batch_signals
from trmon_client.integrations.trl import attach

WITH_VLLM = {"sampler": tiny.noisy, "corrects": True}


def losses_of(trainer: Any) -> list[float]:
    """Return the losses that TRL logged."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"sampler": tiny.noisy, "num_iterations": 2},
        {"sampler": tiny.with_gap, "gradient_accumulation_steps": 2},
        {**WITH_VLLM, "beta": 0.1, "num_iterations": 2, "gradient_accumulation_steps": 2},
        {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": tiny.prompts(4)},
    ],
    ids=["no sampler's log-probs", "iterations", "gaps, accumulation", "correction, reference", "evaluations"],
)
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, received: Received, given: dict[str, Any]) -> None:
    alone = tiny.grpo(tmp_path, **given)
    before = parameters_of(alone)
    alone.train()
    watched = received.train(tiny.grpo(tmp_path, **given))
    assert losses_of(watched) == losses_of(alone)
    assert are_equal(parameters_of(watched), parameters_of(alone))
    assert not are_equal(parameters_of(watched), before)
    assert len(received.of(wire.Report)) == 4 * given.get("gradient_accumulation_steps", 1)


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({}, [(step, 0, 0, 1) for step in range(4)]),
        ({"num_iterations": 2}, [(0, 0, 0, 1), (0, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 1)]),
        ({"gradient_accumulation_steps": 2}, [(step, 0, chunk, 2) for step in range(4) for chunk in range(2)]),
        (
            {"num_iterations": 2, "gradient_accumulation_steps": 2},
            [(step, update, chunk, 2) for step in (0, 2) for update in range(2) for chunk in range(2)],
        ),
        ({"steps_per_generation": 2}, [(0, 0, 0, 1), (0, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 1)]),
        (
            {"gradient_accumulation_steps": 2, "steps_per_generation": 1},
            [(step, 0, chunk, 2) for step in range(4) for chunk in range(2)],
        ),
    ],
    ids=["plain", "iterations", "accumulation", "both", "two updates a generation", "two generations an update"],
)
def test_steps_are_generations_and_updates_are_optimizer_steps(
    tmp_path: Path, received: Received, given: dict[str, Any], keys: list[tuple[int, int, int, int]]
) -> None:
    received.train(tiny.grpo(tmp_path, **WITH_VLLM, **given))
    assert received.keys == keys
    for report in received.of(wire.Report):
        columns = wire.unpack_columns(report)
        assert (report.trainer_version, report.old_version) == (report.step + report.update, report.step)
        assert columns["version_min"].tolist() == [report.step] * tiny.BATCH
    # Rollouts that are generated within one optimizer step have groups of their own.
    groups = [wire.unpack_columns(report)["group_id"] for report in received.of(wire.Report) if report.step == 0]
    once = groups[: len(groups) // given.get("num_iterations", 1)]
    labels, counts = np.unique(np.concatenate(once), return_counts=True)
    assert counts.tolist() == [tiny.N_GENERATIONS] * len(labels)


def test_what_arrives_is_what_trl_logs(tmp_path: Path, received: Received) -> None:
    trainer = received.train(tiny.grpo(tmp_path, **WITH_VLLM, temperature=0.9))
    for step, logged in enumerate(trainer.state.log_history[:4]):
        found = received.signals(step)
        expected = {
            "mismatch_abs_log_ratio_mean": logged["sampling/sampling_logp_difference/mean"],
            "mismatch_abs_log_ratio_max": logged["sampling/sampling_logp_difference/max"],
            "reward_mean": logged["reward"],
            "zero_variance_groups": logged["frac_reward_zero_std"],
            "response_length_mean": logged["completions/mean_length"],
            "response_length_max": logged["completions/max_length"],
            "clip_fraction": logged["clip_ratio/region_mean"],
            "staleness_kl_k3": 0.0,
        }
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert expected["mismatch_abs_log_ratio_max"] > 0
        for name, scalar in {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "lr"}.items():
            assert received.scalars(scalar)[step] == logged[name]
        assert received.scalars("sampling/importance_sampling_ratio/max")[step] > 0
        assert received.scalars("completions/clipped_ratio")[step] == logged["completions/clipped_ratio"]


def test_a_second_update_is_stale_and_the_first_is_not(tmp_path: Path, received: Received) -> None:
    received.train(tiny.grpo(tmp_path, num_iterations=2))
    first, second = (np.abs(columns["staleness_sum_d"]).max() for columns in received.columns[:2])
    assert first < 1e-5 < 1e-3 < second
    assert "total_sum_d" not in received.columns[0]


def test_without_anything_to_compare_it_says_so_once_and_sends_rewards_and_scalars(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    received.train(tiny.grpo(tmp_path))
    said = capfd.readouterr().err
    assert said.count("nothing to compare: only logprobs= is given") == 1
    assert said.count("trmon:") == 1
    assert not any(columns.pairs for columns in received.columns)
    assert all(np.isfinite(columns["reward"]).all() for columns in received.columns)
    assert len(received.scalars("loss")) == 4


def test_a_token_that_the_sampler_could_not_score_is_invalid(tmp_path: Path, received: Received) -> None:
    received.train(tiny.grpo(tmp_path, sampler=tiny.with_gap))
    assert received.n_invalid == 4 * tiny.BATCH
    assert all(math.isfinite(received.signals(step)["mismatch_kl_k3"]) for step in range(4))


def test_log_probs_of_a_rollout_func_are_the_samplers(tmp_path: Path, received: Received) -> None:
    if tiny.VERSION < (1, 0):
        pytest.skip("this TRL calls a rollout_func with vLLM only")

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [[5, 6]] * len(prompts)
        completions = {"completion_ids": [[7, 8, 1]] * len(ids), "logprobs": [[-3.0, -4.0, -5.0]] * len(ids)}
        return {"prompt_ids": ids, **completions, "env_mask": [[1, 0, 1]] * len(ids)}

    received.train(tiny.grpo(tmp_path, rollout_func=rollouts))
    # The second token is that of a tool.
    assert [columns["sum_logp_rollout"].tolist() for columns in received.columns] == 4 * [4 * [-8.0]]
    assert [columns["n_tokens"].tolist() for columns in received.columns] == 4 * [4 * [2]]
    assert not any("version_min" in columns for columns in received.columns)  # which weights sampled is unknown


def test_a_service_that_fails_changes_nothing(tmp_path: Path) -> None:
    alone = tiny.grpo(tmp_path, sampler=tiny.noisy)
    alone.train()
    watched = tiny.grpo(tmp_path, sampler=tiny.noisy)
    with Peer(otherwise=Answer(500)) as peer:
        attach(watched, project="math", run="tiny", url=peer.url, spool_dir=tmp_path / "spool")
        watched.train()
        assert peer.requests
    assert are_equal(parameters_of(watched), parameters_of(alone))
    assert steps(spooled(tmp_path)) == [0, 1, 2, 3]


def test_a_completion_that_no_function_scores_has_no_reward(tmp_path: Path, received: Received) -> None:
    def picky(completions: list[str], **_: Any) -> list[float | None]:
        return [None, *(float(len(text)) for text in completions[1:])]

    received.train(tiny.grpo(tmp_path, sampler=tiny.noisy, reward_funcs=[picky]))
    assert [int(np.isnan(columns["reward"]).sum()) for columns in received.columns] == [1] * 4


def test_rewards_are_weighted(tmp_path: Path, received: Received) -> None:
    def constant(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    received.train(tiny.grpo(tmp_path, reward_funcs=[constant, constant], reward_weights=[0.5, 2.0]))
    assert {value for columns in received.columns for value in columns["reward"]} == {2.5}


def test_truncated_completions_that_trl_masks_are_empty_and_count_as_cut(tmp_path: Path, received: Received) -> None:
    trainer = received.train(tiny.grpo(tmp_path, **WITH_VLLM, mask_truncated_completions=True))
    shares = [entry["completions/clipped_ratio"] for entry in trainer.state.log_history if "loss" in entry]
    assert max(shares) > 0
    assert [np.mean(columns["n_tokens"] == 0) for columns in received.columns] == shares
    found = [batch_signals.compute(columns)["length_limit_share"] for columns in received.columns]
    assert found == pytest.approx(shares)


def test_evaluations_and_checkpoints_pause_the_run(tmp_path: Path, received: Received) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    received.train(tiny.grpo(tmp_path, sampler=tiny.noisy, eval_dataset=tiny.prompts(4), **saving))
    assert {pause.reason for pause in received.of(wire.Pause)} == {"evaluation", "checkpoint"}
    assert received.keys == [(step, 0, 0, 1) for step in range(4)]
    assert set(received.scalars("loss")) == set(range(4))


def test_a_resumed_run_goes_on_at_its_checkpoint(tmp_path: Path, received: Received) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2, "sampler": tiny.noisy}
    tiny.grpo(tmp_path, **saving).train()
    received.train(tiny.grpo(tmp_path, **saving), resume=str(tmp_path / "out" / "checkpoint-2"))
    assert received.keys == [(2, 0, 0, 1), (3, 0, 0, 1)]


def test_each_training_of_a_trainer_is_a_run_of_its_own_that_ends(tmp_path: Path, received: Received) -> None:
    trainer = received.train(tiny.grpo(tmp_path, sampler=tiny.noisy))
    trainer.train()
    finishes = received.of(wire.Finish)
    assert [finish.reason for finish in finishes] == ["closed", "closed"]
    assert len({finish.attempt for finish in finishes}) == 2
    assert received.keys == 2 * [(step, 0, 0, 1) for step in range(4)]


def test_an_exception_in_training_is_a_crash_and_reaches_the_caller(tmp_path: Path, received: Received) -> None:
    def broken(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if trainer_state.global_step == 2:
            raise ZeroDivisionError("no reward")
        return [1.0] * len(completions)

    with pytest.raises(ZeroDivisionError, match="no reward"):
        received.train(tiny.grpo(tmp_path, reward_funcs=[broken]))
    (finish,) = received.of(wire.Finish)
    assert (finish.outcome, finish.error) == ("crashed", "ZeroDivisionError: no reward")


def test_the_configuration_is_the_trainers_without_secrets(tmp_path: Path, received: Received) -> None:
    given = {"temperature": 0.7, "top_p": 0.95, "hub_token": "hf_abcdefghijklmnop", "off_policy_mask_threshold": 0.5}
    received.train(tiny.grpo(tmp_path, **given), config={"note": "first"}, owner="me")
    (start,) = received.of(wire.Start)
    expected = {"temperature": 0.7, "top_p": 0.95, "off_policy_mask_threshold": 0.5, "num_generations": 2}
    assert {name: start.config[name] for name in expected} == expected
    assert (start.config["note"], start.owner) == ("first", "me")
    assert "hf_abcdefghijklmnop" not in repr(start)
    assert start.config["framework"].startswith("trl ")


def test_attaching_again_replaces_the_first(tmp_path: Path, received: Received) -> None:
    trainer = tiny.grpo(tmp_path, sampler=tiny.noisy)
    attach(trainer, project="math", run="other", url="http://127.0.0.1:9")
    received.train(trainer)
    assert received.keys == [(step, 0, 0, 1) for step in range(4)]
    assert {report.run for report in received.of(wire.Report)} == {"tiny"}


def test_off_wraps_nothing(tmp_path: Path) -> None:
    trainer = tiny.grpo(tmp_path)
    before = set(vars(trainer))
    attach(trainer, project="math", run="tiny", mode="off")
    assert set(vars(trainer)) == before


@pytest.mark.parametrize(("module", "kind"), [("gmpo", "GMPOTrainer"), ("gspo_token", "GRPOTrainer")])
def test_a_trainer_with_another_loss_is_attached_as_its_parent(
    tmp_path: Path, received: Received, module: str, kind: str
) -> None:
    found = pytest.importorskip(f"trl.experimental.{module}", reason="this TRL has no such trainer")
    received.train(tiny.grpo(tmp_path, kind=getattr(found, kind), num_iterations=2))
    assert received.keys == [(0, 0, 0, 1), (0, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 1)]
    assert {columns.pairs for columns in received.columns} == {("staleness",)}


def brevity(completions: list[str], **_: Any) -> list[float]:
    """Return a second reward, larger for fewer words."""
    return [1.0 / (1 + len(text.split())) for text in completions]


def test_evaluations_rewards_by_function_and_what_is_read_from_ids_are_reported(
    tmp_path: Path, received: Received
) -> None:
    given: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "eval_dataset": tiny.prompts(4)}
    trainer = tiny.grpo(tmp_path, **WITH_VLLM, beta=0.1, reward_funcs=[tiny.word_sum, brevity], **given)
    received.train(trainer)
    trained = [entry for entry in trainer.state.log_history if "loss" in entry]
    evaluated = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    for name, entries in (
        ("rewards/word_sum/mean", trained),
        ("rewards/brevity/mean", trained),
        ("eval_reward", evaluated),
        ("eval_rewards/brevity/mean", evaluated),
        ("eval_completions/mean_length", evaluated),
    ):
        assert received.scalars(name) == {int(entry["step"]) - 1: entry[name] for entry in entries}, name
    for entry, columns in zip(trained, received.columns, strict=True):
        signals = batch_signals.compute(columns)
        assert signals["length_limit_share"] == pytest.approx(entry["completions/clipped_ratio"])
        assert signals["ref_kl_k3"] == pytest.approx(entry["kl"], rel=1e-3, abs=1e-9)
        np.testing.assert_array_equal(columns["n_four_grams"], np.maximum(columns["n_tokens"] - 3, 0))
