"""Opt-in advice on real optimizers and in a real process group."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import settings
from trmon_client.active_policies import TrainerAdvice
from trmon_client.advice import StepRequests, requests_at_step, scale_lr, should_stop
from trmon_client.batch_decision import BatchDecision
from trmon_client.core.inputs.checked_inputs import GivenBatch
from trmon_client.error_guard import ErrorGuard
from trmon_client.monitor import Monitor

ADVICE: dict[str, Any] = {"step": 300, "lr_scale": 0.5, "lr_scale_sgd": 0.25, "lr_decay": None}
CUT = {"factor": 0.5, "step": 200}


def decided(advice: dict[str, Any] | None) -> BatchDecision:
    """Return a neutral decision with advice."""
    given = None if advice is None else TrainerAdvice(advice)
    return replace(BatchDecision.neutral(GivenBatch(mask=np.ones((2, 3))), error_guard=ErrorGuard()), advice=given)


def plain(*, lr: float = 1.0) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    """Return SGD over one weight of gradient 1, so that a step shows the rate."""
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=lr), weight


def moved(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> float:
    """Return the size of one step: the rate in force."""
    before = weight.item()
    optimizer.step()
    return before - weight.item()


def test_each_step_is_scaled_once_in_each_group_and_the_trainers_rates_stay() -> None:
    first, second = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    first.grad = second.grad = torch.ones(1)
    optimizer = torch.optim.SGD([{"params": [first], "lr": 1.0}, {"params": [second], "lr": 0.1}])
    for n in (1, 2):
        assert scale_lr(optimizer, decided(ADVICE)) == 0.25
        optimizer.step()
        assert (first.item(), second.item()) == (-0.25 * n, pytest.approx(-0.025 * n))
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]


def test_adam_uses_the_square_root() -> None:
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.ones(1)
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
    assert scale_lr(optimizer, decided(ADVICE)) == 0.5
    assert moved(optimizer, weight) == pytest.approx(0.05, rel=1e-5)


@pytest.mark.parametrize("advice", [None, {**ADVICE, "lr_scale_sgd": 1.0}], ids=["none", "expired"])
def test_without_advice_nothing_is_scaled_any_longer(advice: dict[str, Any] | None) -> None:
    optimizer, weight = plain()
    scale_lr(optimizer, decided(ADVICE))
    assert scale_lr(optimizer, decided(advice)) == 1.0
    assert moved(optimizer, weight) == 1.0


def test_a_scheduler_that_multiplies_sees_its_own_rate() -> None:
    optimizer, weight = plain()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    rates = []
    for _ in range(3):
        scale_lr(optimizer, decided(ADVICE))
        rates.append(moved(optimizer, weight))
        scheduler.step()
    assert rates == pytest.approx([0.25, 0.125, 0.0625])


def test_a_cut_is_made_once_lasts_and_is_in_the_optimizers_checkpoint() -> None:
    optimizer, _ = plain()
    cut = {**ADVICE, "lr_scale_sgd": 1.0, "lr_decay": CUT}
    assert [scale_lr(optimizer, decided(cut)) for _ in range(3)] == [0.5, 0.5, 0.5]
    resumed, weight = plain()
    resumed.load_state_dict(optimizer.state_dict())
    assert scale_lr(resumed, decided(None)) == 0.5
    assert moved(resumed, weight) == 0.5


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        pytest.param(299, 0.5, id="a second one within 100 steps is not"),
        pytest.param(300, 0.25, id="after 100 steps it is"),
        pytest.param(100, 0.5, id="one from before is not"),
    ],
)
def test_there_is_at_most_one_cut_in_100_steps(step: int, factor: float) -> None:
    optimizer, _ = plain()
    for at in (200, step):
        advice = {**ADVICE, "lr_scale_sgd": 1.0, "lr_decay": {"factor": 0.5, "step": at}}
        applied = scale_lr(optimizer, decided(advice))
    assert applied == factor


def test_a_step_that_raised_leaves_no_scaled_rate_behind() -> None:
    optimizer, weight = plain()
    scale_lr(optimizer, decided(ADVICE))

    def closure() -> float:
        raise FloatingPointError("loss is NaN")

    with pytest.raises(FloatingPointError):
        optimizer.step(closure)
    assert moved(optimizer, weight) == 0.25
    assert optimizer.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize(
    "advice",
    [
        pytest.param({}, id="no scale in it"),
        pytest.param({**ADVICE, "lr_scale_sgd": 2.0}, id="a scale that raises the rate"),
        pytest.param({**ADVICE, "lr_scale_sgd": float("nan")}, id="NaN"),
        pytest.param({**ADVICE, "lr_scale_sgd": "half"}, id="no number"),
        pytest.param({**ADVICE, "lr_decay": {"factor": 0.0, "step": 999}}, id="a cut to nothing"),
    ],
)
def test_invalid_advice_is_counted_and_changes_nothing(advice: dict[str, Any]) -> None:
    optimizer, weight = plain()
    scale_lr(optimizer, decided({**ADVICE, "lr_decay": CUT}))
    decision = decided(advice)
    assert scale_lr(optimizer, decision) == 0.5, "earlier cuts stay"
    assert moved(optimizer, weight) == 0.5
    assert decision.error_guard.losses.snapshot() == {"internal": 1}


@pytest.fixture
def process_group() -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_an_object_that_is_not_an_optimizer_raises_nothing() -> None:
    assert scale_lr(object(), decided(ADVICE)) == 1.0


# What optimizers import at their first step keeps every process group that exists by then: the threads of gloo outlive
# `destroy_process_group`, and one that releases a tensor while the interpreter ends aborts the process.
RANK = """
import sys
from pathlib import Path
import torch._dynamo
from tests.client.test_advice import ADVICE, CUT, decided, moved, plain
from tests.client.trainer import settings
from trmon_client.advice import requests_at_step, scale_lr, should_stop
from trmon_client.monitor import Monitor

rank, place = int(sys.argv[1]), Path(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
optimizer, weight = plain()
advices = [{**ADVICE, "lr_decay": CUT}, {}, None] if rank == 0 else [None, {**ADVICE, "lr_scale_sgd": 0.1}, None]
for advice in advices:
    print(scale_lr(optimizer, decided(advice)), moved(optimizer, weight))
print(should_stop(decided({"should_stop": rank == 0})), should_stop(decided({"should_stop": rank == 1})))
optimizers = [torch.optim.SGD([{"params": []}], lr=1.0), object(), plain()[0]]
for optimizer in optimizers if rank == 0 else [plain()[0] for _ in range(3)]:
    decision = decided({**ADVICE, "lr_decay": CUT} if rank == 0 else None)
    print(scale_lr(optimizer, decision), decision.error_guard.losses.snapshot())
print("-")
monitor = Monitor(settings(place.parent, mode="off", checkpoint_on_warning=True, rank=rank, world_size=2))
incident = {"opened_step": 4, "severity": "page", "title": "drift"}
asked = {"step": 1, "save_checkpoint": True, "incident": incident}
# Rank 1 has heard of it a step before rank 0, which decides.
for step, (first, other) in enumerate([(None, asked), (asked, asked), (None, None)]):
    if (advice := other if rank else first) is not None:
        monitor.advice_cache.update(advice)
    given = monitor if rank == 0 or step < 2 else None
    found = requests_at_step(given)
    print(step, found.save_checkpoint, found.incident and found.incident["title"])
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def said_by_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The lines that each of two ranks prints: of scaling and stopping, then "-", then of requests."""
    place = tmp_path_factory.mktemp("ranks") / "store"
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(place)], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    told = [rank.communicate(timeout=120)[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return told


def test_rank_0_decides_for_all_also_where_a_rank_fails_or_has_no_parameters(said_by_ranks: list[list[str]]) -> None:
    told = [lines[: lines.index("-")] for lines in said_by_ranks]
    n_without_parameters = 3
    first, other = (lines[:-n_without_parameters] for lines in told)
    assert first == other
    assert (first[0], first[-1]) == ("0.125 0.125", "True False")
    assert told[0][-n_without_parameters:] == ["0.125 {}", "1.0 {'internal': 2}", "0.125 {}"]
    assert told[1][-n_without_parameters:] == ["0.125 {}", "0.25 {}", "0.125 {}"]


@pytest.mark.usefixtures("process_group")
def test_without_agreement_earlier_cuts_stay() -> None:
    optimizer, _ = plain()
    scale_lr(optimizer, decided({**ADVICE, "lr_decay": CUT}))
    decision = decided(ADVICE)
    assert scale_lr(optimizer, decision, process_group=object()) == 0.5
    assert decision.error_guard.losses.snapshot() == {"internal": 1}


@pytest.mark.parametrize(
    ("advice", "stops"),
    [
        (None, False),
        ({"step": 3}, False),
        ({"step": 3, "should_stop": False}, False),
        ({"step": 3, "should_stop": True}, True),
        ({"step": 3, "should_stop": "yes"}, False),
    ],
    ids=["no advice", "an older service", "not now", "now", "not a truth value"],
)
def test_a_run_stops_only_on_the_advice_to(advice: dict[str, Any] | None, stops: bool) -> None:
    decision = decided(advice)
    assert should_stop(decision) is stops
    assert (decision.advice is not None and decision.advice.should_stop) is stops


def test_a_checkpoint_and_an_incident_are_agreed_on_before_any_rank_acts(said_by_ranks: list[list[str]]) -> None:
    told = [lines[lines.index("-") + 1 :] for lines in said_by_ranks]
    assert told[0] == told[1] == ["0 False None", "1 True drift", "2 False None"]


@pytest.mark.usefixtures("process_group")
def test_without_agreement_nothing_is_asked(tmp_path: Path) -> None:
    monitor = Monitor(settings(tmp_path, checkpoint_on_warning=True))
    monitor.advice_cache.update({"step": 1, "save_checkpoint": True, "incident": {"opened_step": 1}})
    assert requests_at_step(monitor, process_group=object()) == StepRequests()
    assert monitor.error_guard.losses.snapshot() == {"internal": 1}
