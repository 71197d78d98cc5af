"""What TRL's loss is computed from under hard and soft policies."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.batch_decision import BatchDecision
from trmon_client.integrations.trl import attach
from trmon_client.integrations.trl.rollout_hooks import UpdateKeys, restrict_to_accepted
from trmon_client.monitor import Monitor

HARD = {"name": "hard", "criteria": [{"statistic": "max_abs_d", "upper": 0.5}]}
SOFT = HARD | {"name": "soft", "soft_tau": 2.0}


def decided(tmp_path: Path, policy: dict[str, Any]) -> tuple[BatchDecision, dict[str, torch.Tensor]]:
    given = {name: torch.from_numpy(array) for name, array in batch(far=(1,), dead=(2,)).items()}
    monitor = Monitor(settings(tmp_path, mode="enforce", policy=policy))
    decision = monitor.log_batch(step=0, **given)
    monitor.close()
    return decision, given


@pytest.mark.parametrize("is_rloo", [False, True], ids=["grpo", "rloo"])
@pytest.mark.parametrize("policy", [HARD, SOFT], ids=["hard", "soft"])
def test_advantages_have_the_weights_of_sequences(tmp_path: Path, policy: dict[str, Any], *, is_rloo: bool) -> None:
    decision, given = decided(tmp_path, policy)
    mu, pi = given["rollout_logprobs"], given["logprobs"]
    inputs = {"advantages": torch.tensor([1.0, -2.0, 3.0, 4.0]), "old_per_token_logps": mu}
    inputs |= {"old_logps": mu.sum(-1)} if is_rloo else {}
    restrict_to_accepted(decision, inputs, (pi, None))
    excess = (pi - mu).abs().amax(-1)[1].item() / 0.5 - 1
    weight = math.exp(-excess / 2) if policy is SOFT else 0.0
    advantages = inputs["advantages"]
    of_sequences = advantages if advantages.dim() == 1 else advantages[:, 0]
    assert of_sequences.tolist() == pytest.approx([1.0, -2.0 * weight, 0.0, 4.0], rel=1e-6)
    assert torch.equal(inputs["old_per_token_logps"][2], pi[2])
    assert torch.equal(inputs["old_per_token_logps"][1], mu[1] if policy is SOFT else pi[1])


KEYS: dict[str, tuple[tuple[int, int, int], list[int], list[Any]]] = {
    "one micro-batch": ((1, 1, 1), [1, 1], [(0, 0, 1), (1, 0, 1)]),
    "accumulation": ((2, 2, 1), [2, 2], [(0, 0, 2)] * 2 + [(1, 0, 2)] * 2),
    "several updates of one generation": ((1, 2, 1), [1] * 4, [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1)]),
    "iterations": ((1, 1, 2), [1] * 4, [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1)]),
    "iterations and accumulation": ((2, 2, 2), [2] * 3, [(0, 0, 2)] * 2 + [(0, 1, 2)] * 2 + [(2, 0, 2)] * 2),
    "several generations in one optimizer step": ((2, 1, 1), [2, 2], [(0, 0, 2)] * 2 + [(1, 0, 2)] * 2),
    "a generation within an optimizer step": ((2, 3, 1), [2, 2], [(0, 0, 2)] * 2 + [(0, 1, None), (1, 0, None)]),
    "an epoch's short last step": ((2, 2, 1), [2, 1, 2], [(0, 0, 2)] * 2 + [(1, 0, None), (1, 1, None), (2, 0, None)]),
}
"""Accumulation, micro-batches of a generation and iterations; micro-batches of each optimizer step; their keys."""


@pytest.mark.parametrize(("sizes", "windows", "expected"), KEYS.values(), ids=KEYS.keys())
def test_a_micro_batch_has_its_key(
    sizes: tuple[int, int, int], windows: list[int], expected: list[tuple[int, ...]]
) -> None:
    accumulation, per_generation, iterations = sizes
    calls_per_rollout = per_generation * iterations
    keys, found = UpdateKeys(calls_per_rollout=calls_per_rollout), []
    for global_step, n_calls in enumerate(windows):
        for _ in range(n_calls):
            if len(found) % calls_per_rollout == 0:
                keys.begin_rollout(global_step)
            found.append(keys.next(global_step, chunks=n_calls if n_calls == accumulation else None))
    assert found == expected


def test_importing_the_integration_imports_no_framework() -> None:
    frameworks = "{'trl', 'transformers', 'accelerate', 'datasets', 'torch'}"
    code = f"import sys, trmon_client.integrations.trl; print(sorted({frameworks} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _log(logs: dict[str, float]) -> None:
    """Log nothing."""


def test_an_object_without_the_methods_gets_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(log=_log)
    attach(trainer, project="math", run="tiny")
    said = capsys.readouterr().err
    assert said.startswith("trmon: SimpleNamespace of TRL ")
    assert said.rstrip().endswith("lacks train(): trmon is not attached")
    assert list(vars(trainer)) == ["log"]
