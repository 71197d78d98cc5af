"""The code for transformers on all pages, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import Trainer, TrainingArguments

from tests.docs.code_blocks import holding
from tests.fixtures.waiting import eventually

RUN = "/api/v1/runs/math/qwen3-8b-grpo"
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
    eventually(lambda: service.get(RUN).json().get("state"), lambda state: state == "finished")
    names["arguments"] = TrainingArguments(output_dir="out", report_to=[], logging_steps=1)
    exec(MADE.text.replace("http://127.0.0.1:8642", url), names)
    names["trainer"].train()
    eventually(lambda: len(service.get(f"{RUN}/attempts").json()["items"]), lambda n: n == 2)
