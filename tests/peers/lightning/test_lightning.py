"""A Trainer of Lightning that reports by the callback alone, and the code for Lightning on all pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from lightning import pytorch as lightning
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from tests.docs.code_blocks import holding
from tests.fixtures.waiting import eventually
from trmon_client.integrations.lightning import LightningCallback

RUN = "/api/v1/runs/math/tiny"
STEPS, ILL_FROM = 90, 40


class Line(LightningModule):  # type: ignore[misc]
    """Fits a line, and logs a reward that falls at a step."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Linear(2, 1)
        self.fails_at = fails_at

    def training_step(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        if step == self.fails_at:
            raise RuntimeError("out of memory")
        loss = self.line(batch).square().mean()
        self.log_dict({"reward": 0.8 if step < ILL_FROM else 0.1, "policy_loss": loss})
        return loss

    def validation_step(self, batch: torch.Tensor, step: int) -> None:
        self.log("val_reward", 0.5)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(folder: Path, service: httpx.Client, module: Line) -> None:
    """Train with the callback."""
    url = str(service.base_url).rstrip("/")
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, log_every_n_steps=1, val_check_interval=30, default_root_dir=folder,
        enable_progress_bar=False, enable_model_summary=False, logger=False,
        callbacks=[LightningCallback(project="math", run="tiny", url=url, spool_dir=folder / "spool")],
    )  # fmt: skip
    data = DataLoader(torch.randn(STEPS, 2), batch_size=1)
    trainer.fit(module, data, DataLoader(torch.randn(2, 2)))
    assert trainer.loggers == []


def ended(service: httpx.Client, state: str) -> Any:
    """Return the run when it has ended so."""
    return eventually(lambda: service.get(RUN).json(), lambda run: run.get("state") == state)


def test_a_reward_collapse_is_found_in_what_the_module_logs(tmp_path: Path, service: httpx.Client) -> None:
    train(tmp_path, service, Line())
    run = ended(service, "finished")
    assert (run["incident"]["cause"], run["end_phrase"], run["warnings"]) == ("reward_collapse", "closed", [])
    assert "fails_at" in run["config"]
    batches = service.get(f"{RUN}/batches", params={"limit": 500}).json()["items"]
    assert [batch["step"] for batch in reversed(batches)] == list(range(STEPS))
    assert {name for batch in batches for name in batch["scalars"]} == {"reward", "policy_loss", "epoch"}
    # Lightning's own checkpoint callback saves at the end of an epoch.
    (saved,) = run["checkpoints"]
    assert saved["step"] == STEPS - 1
    assert torch.load(saved["path"], weights_only=False)["global_step"] == STEPS


def test_an_exception_ends_the_run_as_crashed(tmp_path: Path, service: httpx.Client) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        train(tmp_path, service, Line(fails_at=5))
    assert "out of memory" in ended(service, "crashed")["end"]["error"]


(BLOCK,) = holding("integrations.lightning")


def test_the_code_of_the_page_reports_a_run(
    tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRMON_URL", str(service.base_url).rstrip("/"))
    monkeypatch.setenv("TRMON_SPOOL_DIR", "spool")
    names: dict[str, Any] = {"lightning": lightning}
    exec(BLOCK.text, names)
    trainer = names["trainer"]
    trainer.fit_loop.max_epochs = 1
    trainer.fit(Line(), DataLoader(torch.randn(6, 2), batch_size=1), DataLoader(torch.randn(2, 2)))
    ended(service, "finished")
