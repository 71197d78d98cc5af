"""The engine samples what the model says, and a run of few updates is stored with what its client reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core import wire
from trmon_research.language import models, plans, stored, text, training
from trmon_research.language.engine import Engine
from trmon_research.language.plans import Kind, Plan, Precision

FAR = {"float32": 1e-4, "bfloat16": 0.2, "int8": 0.5}
"""How far a log-prob may be from the model's."""


@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_an_engine_gives_the_models_log_probs_as_far_as_its_precision_allows(kind: Kind, precision: Precision) -> None:
    model = models.trained_model(kind).eval()
    engine = Engine(model.config, precision=precision, seed=0)
    engine.load(model.state_dict())
    prompts = [one.ids for one in text.tokenizer().encode_batch(text.prompts()[:6])]
    assert len(set(map(len, prompts))) > 1
    far = []
    for prompt, rollout in zip(prompts, engine.generate(prompts, n_tokens=24), strict=True):
        assert 0 < len(rollout.tokens) == len(rollout.logprobs) <= 24
        assert text.END_ID not in rollout.tokens[:-1]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + rollout.tokens])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(rollout.tokens)[:, None])[:, 0].numpy()
        far.append(np.abs(expected - np.array(rollout.logprobs)).max())
    assert max(far) < FAR[precision]
    assert precision == "float32" or max(far) > 1e-6


def test_a_nucleus_and_a_temperature_change_what_is_sampled_and_what_is_returned() -> None:
    model = models.trained_model("dense")
    engine = Engine(model.config, precision="float32", seed=0)
    engine.load(model.state_dict())
    prompts = [text.tokenizer().encode(text.prompts()[0]).ids] * 16
    means = []
    for change in ({}, {"top_p": 0.5}, {"temperature": 0.2}):
        engine.sampling = replace(engine.sampling, **{"top_p": 1.0, "temperature": 1.0, **change})
        rollouts = engine.generate(prompts, n_tokens=16)
        means.append(np.mean([value for one in rollouts for value in one.logprobs]))
    assert means[0] < means[1] < 0
    assert means[0] < means[2] < 0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Runs of four updates of few short responses, stored in a folder of their own."""
    monkeypatch.setattr(training, "N_UPDATES", 4)
    monkeypatch.setattr(training, "N_PROMPTS", 2)
    monkeypatch.setattr(training, "N_TOKENS", 12)
    monkeypatch.setattr(training, "EVALUATED_EVERY", 2)
    monkeypatch.setattr(stored, "RUNS", tmp_path / "stored")
    monkeypatch.setattr(stored, "MANIFEST", tmp_path / "stored" / "manifest.jsonl")
    monkeypatch.setattr(stored, "TOKENS_EVERY", 2)
    return tmp_path


@pytest.mark.parametrize(
    ("plan", "steps", "n_attempts"),
    [
        (Plan("one", precision="int8"), [0, 1, 2, 3], 1),
        (Plan("two", kind="moe", n_updates_a_rollout=2), [0, 0, 2, 2], 1),
        (Plan("again", restarts_at=2), [0, 1, 2, 3], 2),
    ],
    ids=lambda value: value.name if isinstance(value, Plan) else None,
)
def test_a_run_is_stored_with_its_reports_tokens_and_evaluations(
    short: Path, plan: Plan, steps: list[int], n_attempts: int
) -> None:
    training.train(plan, short / plan.name)
    assert not (short / plan.name).exists()
    folder = stored.unpack(plan.name, short / "unpacked")
    reports = list(stored.messages_of(folder, wire.Report))
    assert [report.step for report in reports] == steps
    assert len({report.attempt for report in reports}) == n_attempts
    for report in reports:
        columns = wire.unpack_columns(report)
        assert columns.n_sequences == 16 // plan.n_updates_a_rollout
        assert set(columns["version_min"].tolist()) == {report.step}
        assert np.abs(columns["mismatch_sum_d"]).max() < 5
    kept = [json.loads(path.read_text())["calls"] for path in sorted(folder.rglob("recording.json"))]
    assert {call["step"] for calls in kept for call in calls} == {0, 2}
    (line,) = map(json.loads, stored.MANIFEST.read_text().splitlines())
    assert [*line["evaluated"]] == ["1", "3"]


FAULTS = sorted({plan.fault.name for plan in plans.plans() if plan.fault})


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_begins_at_its_update(short: Path, fault: str) -> None:
    plan = next(plan for plan in plans.plans() if plan.fault and plan.fault.name == fault)
    assert plan.fault is not None
    plan = replace(plan, fault=replace(plan.fault, at=2))
    trainer = training.make_trainer(plan, short)
    before, seen = {}, {}
    trainer.add_callback(Watch(trainer, before=before, seen=seen, at=2))
    trainer.train()
    assert before != seen, fault


class Watch(training.TrainerCallback):
    """Notes what a fault may change, before and from its update on."""

    def __init__(self, trainer: training.LanguageTrainer, *, before: dict, seen: dict, at: int) -> None:
        self._trainer, self._before, self._seen, self._at = trainer, before, seen, at

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        trainer = self._trainer
        rollouts, reward = trainer.vllm_generation, trainer.reward_funcs[0]
        found = self._before if state.global_step < self._at else self._seen
        found |= {
            "sampling": repr(rollouts.engine.sampling),
            "frozen": rollouts.is_frozen,
            "lag": trainer.state.global_step - rollouts.version,
            "change": rollouts.change is not None,
            "padding": trainer.counts_padding,
            "entropy": trainer.entropy_coef,
            "reward": (reward.sign, reward.length_bonus),
            "rate": given["optimizer"].param_groups[0]["lr"],
        }
