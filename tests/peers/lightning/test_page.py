"""The code for Lightning on all pages, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from lightning import pytorch as lightning

from tests.docs.code_blocks import holding
from tests.fixtures.waiting import eventually
from tests.peers.lightning.test_callback import DataLoader, Line, torch

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
    eventually(lambda: service.get("/api/v1/runs/math/tiny").json().get("state"), lambda state: state == "finished")
