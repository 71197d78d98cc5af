"""A Trainer of transformers that reports by the callback alone: the findings that scalars show are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import Trainer, TrainingArguments

from tests.docs.code_blocks import holding
from tests.fixtures.waiting import eventually
from trmon_client.integrations.transformers import TransformersCallback

RUN = "/api/v1/runs/math/tiny"
STEPS, ILL_FROM = 90, 40
HEALTHY = {"reward": 0.8, "entropy": 0.7, "completions/mean_length": 100.0, "completions/clipped_ratio": 0.0}

Metrics = Callable[[int], dict[str, float]]


class LoggingTrainer(Trainer):  # type: ignore[misc]
    """Fits a line, logs the metrics of a step as GRPOTrainer does, and loses its weights at a step."""

    def __init__(self, metrics: Metrics, *, weights_lost_at: float = math.inf, **given: Any) -> None:
        super().__init__(**given)
        self._metrics = metrics
        self._weights_lost_at = weights_lost_at

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *_: Any, **__: Any) -> torch.Tensor:
        if self.state.global_step >= self._weights_lost_at:
            with torch.no_grad():
                model.weight.fill_(math.nan)
        self.log(self._metrics(self.state.global_step))
        return ((model(inputs["x"]) - inputs["y"]) ** 2).mean()


def train(folder: Path, service: httpx.Client, metrics: Metrics, report_to: Any = (), **given: Any) -> None:
    """Train with the callback, made here or by its name, and wait until the service has finished with the run."""
    arguments = TrainingArguments(
        output_dir=str(folder / "out"), max_steps=STEPS, logging_steps=1, report_to=report_to or [], use_cpu=True,
        save_strategy="steps", save_steps=50, disable_tqdm=True, learning_rate=1e-2, hub_token="hf_secret",
        remove_unused_columns=False, run_name="tiny",
    )  # fmt: skip
    url = str(service.base_url).rstrip("/")
    made = TransformersCallback(project="math", run="tiny", url=url, spool_dir=folder / "spool")
    LoggingTrainer(
        metrics,
        model=torch.nn.Linear(2, 1),
        args=arguments,
        train_dataset=[{"x": torch.randn(2), "y": torch.randn(1)} for _ in range(64)],
        callbacks=[] if report_to else [made],
        **given,
    ).train()
    eventually(lambda: service.get(RUN).json()["state"], lambda state: state == "finished")


@pytest.mark.parametrize("report_to", [(), "trmon"], ids=["a callback made here", "one by its name"])
def test_what_the_scalars_show_is_found(
    tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch, report_to: Any
) -> None:
    variables = {"URL": str(service.base_url).rstrip("/"), "PROJECT": "math", "SPOOL_DIR": str(tmp_path / "spool")}
    for name, value in variables.items():
        monkeypatch.setenv(f"TRMON_{name}", value)
    train(tmp_path, service, lambda step: {**HEALTHY, "reward": 0.8 if step < ILL_FROM else 0.1}, report_to)
    incident = service.get(RUN).json()["incident"]
    assert incident["cause"] == "reward_collapse"
    assert ILL_FROM <= incident["since_step"] < STEPS


def test_weights_that_are_not_numbers_are_found(tmp_path: Path, service: httpx.Client) -> None:
    train(tmp_path, service, lambda _: HEALTHY, weights_lost_at=ILL_FROM)
    assert service.get(RUN).json()["incident"]["cause"] == "not_a_number"


def test_a_healthy_run_has_its_scalars_its_arguments_and_no_incident(tmp_path: Path, service: httpx.Client) -> None:
    train(tmp_path, service, lambda _: HEALTHY)
    run = service.get(RUN).json()
    assert (run["incident"], run["end_phrase"], run["warnings"]) == (None, "closed", [])
    assert run["config"]["framework"].startswith("transformers ")
    assert run["config"]["learning_rate"] == 1e-2
    assert "hf_secret" not in str(run["config"])
    batches = service.get(f"{RUN}/batches", params={"limit": 500}).json()["items"]
    assert [batch["step"] for batch in batches] == list(range(STEPS, -1, -1))
    last = batches[1]
    assert last["signals"]["reward_mean"] == 0.8
    assert {"loss", "grad_norm", "learning_rate"} <= last["scalars"].keys()
    assert not {"train_loss", "train_runtime"} & batches[0]["scalars"].keys()


def test_wrong_names_fail_before_training() -> None:
    with pytest.raises(ValueError, match="project"):
        TransformersCallback(project="a b", run="tiny")


PAGES_RUN = "/api/v1/runs/math/qwen3-8b-grpo"
NAMED, MADE = holding("integrations.transformers")


class Line(torch.nn.Linear):
    """Fits a line."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"loss": (super().forward(x) - labels).square().mean()}


def test_the_code_of_the_page_reports_runs(
    tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = str(service.base_url).rstrip("/")
    for name, value in {"URL": url, "PROJECT": "math", "SPOOL_DIR": "spool"}.items():
        monkeypatch.setenv(f"TRMON_{name}", value)
    dataset = [{"x": torch.randn(2), "labels": torch.randn(1)} for _ in range(16)]
    names: dict[str, Any] = {
        "Trainer": Trainer, "TrainingArguments": TrainingArguments, "model": Line(2, 1), "dataset": dataset
    }  # fmt: skip
    exec(NAMED.text, names)
    Trainer(model=names["model"], args=names["arguments"], train_dataset=dataset).train()
    eventually(lambda: service.get(PAGES_RUN).json().get("state"), lambda state: state == "finished")
    names["arguments"] = TrainingArguments(output_dir="out", report_to=[], logging_steps=1)
    exec(MADE.text.replace("http://127.0.0.1:8642", url), names)
    names["trainer"].train()
    eventually(lambda: len(service.get(f"{PAGES_RUN}/attempts").json()["items"]), lambda n: n == 2)
