"""The calls of trackers that trmon keeps itself: the steps of numbers, and what it understands of `init`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import numbers
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations import trackers

NAN = float("nan")


@pytest.fixture
def server(server: Peer, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A server to which the next run reports, under the names that `init` gives it."""
    for name in ("PROJECT", "RUN"):
        monkeypatch.delenv(f"TRMON_{name}")
    return server


def test_a_run_has_its_names_its_configuration_and_the_numbers_among_the_values(server: Peer) -> None:
    config = {"lr": 1e-6, "api_key": "abcdefgh"}
    run = trackers.init("math / grpo", name="qwen 3", config=config, entity="me", mode="offline", settings=object())
    run.config.update(beta=0.1)
    assert trackers.run is run
    values = {"loss": torch.tensor(0.5), "table": [1, 2], "text": "a", "trmon/reward_collapse": 1.0}
    trackers.log({"reward": 1, **values}, step=7)
    trackers.finish(exit_code=0)
    assert trackers.run is None
    assert numbers(server) == [(7, {"reward": 1.0, "loss": 0.5})]
    (start,) = server.of(wire.Start)
    assert (start.project, start.run) == ("math-grpo", "qwen-3")
    assert (start.config["lr"], start.config["beta"], start.config["api_key"]) == (1e-6, 0.1, "***")


A, B = {"a": 1.0}, {"b": 1.0}
STEPS: dict[str, tuple[Any, ...]] = {
    "calls are counted": ([], [(A, {}), (A, {}), (A, {})], [0, 1, 2]),
    "a call without commit shares its step with the next": ([], [(A, {"commit": False}), (B, {}), (A, {})], [0, 0, 1]),
    "a given step ends by the next one, or by commit": (
        [],
        [(A, {"step": 5}), (B, {}), (A, {"step": 6, "commit": True}), (A, {})],
        [5, 5, 6, 7],
    ),
    "a step metric": ([("*", "step")], [({**A, "step": 40}, {}), ({**A, "step": 41}, {})], [40, 41]),
    "of two step metrics the first counts": (
        [("rollout/*", "rollout/step"), ("train/*", "train/step")],
        [
            (A, {}),
            ({"rollout/r": 1.0, "rollout/step": 3}, {}),
            ({"train/loss": 1.0, "train/step": 12}, {}),
            ({"rollout/r": 1.0, "rollout/step": 4}, {}),
        ],
        [3, 3, 4],
    ),
    "a time is no step": ([("*", "_timestamp")], [({**A, "_timestamp": 1.5}, {})], []),
}


@pytest.mark.parametrize(("metrics", "calls", "steps"), STEPS.values(), ids=STEPS.keys())
def test_the_step_of_a_call(
    server: Peer, metrics: list[tuple[str, str]], calls: list[tuple[dict[str, float], dict[str, Any]]], steps: list[int]
) -> None:
    trackers.init(project="math", name="steps")
    for name, step_metric in metrics:
        trackers.define_metric(name, step_metric=step_metric)
    for values, how in calls:
        trackers.log(values, **how)
    trackers.log({"last": 1.0}, step=99)
    trackers.finish()
    assert [step for step, _ in numbers(server)] == [*steps, 99]


def test_an_exception_that_ends_the_run_is_its_end(server: Peer) -> None:
    trackers.init(project="math", name="steps")
    trackers.log({"reward": NAN})
    try:
        raise RuntimeError("out of memory")
    except RuntimeError:
        trackers.finish()
    assert len(numbers(server)) == 1
    (end,) = server.of(wire.Finish)
    assert (end.outcome, end.error) == ("crashed", "RuntimeError: out of memory")


def test_what_cannot_be_reported_is_said_once(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        trackers.log({"reward": 1.0})
    trackers.init(name="no project")
    for _ in range(2):
        trackers.log({"reward": 1.0})
    trackers.finish()
    said = capfd.readouterr().err
    assert (said.count("before init()"), said.count("trains without trmon: project is needed")) == (1, 1)
    assert server.messages == []


def test_a_tracker_of_another_name_is_refused() -> None:
    with pytest.raises(KeyError, match="tensorbored"):
        trackers.follow("tensorbored")
