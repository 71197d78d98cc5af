"""The code for TRL on all pages, run."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.docs.code_blocks import Block, holding
from tests.fixtures.waiting import eventually
from tests.peers.trl.tiny import grpo
from trmon_client.integrations.trl import attach


@pytest.mark.parametrize("block", holding("attach(trainer, "), ids=str)
def test_the_code_of_the_page_reports_a_run(
    block: Block, tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(service.base_url).rstrip("/")
    monkeypatch.setenv("TRMON_URL", url)
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    code = block.text.replace("http://127.0.0.1:8642", url)
    # The page leaves the arguments out.
    names = {"attach": attach, "GRPOTrainer": lambda **_: grpo(tmp_path), "trainer": grpo(tmp_path)}
    exec(code, names)
    if "trainer.train()" not in code:
        names["trainer"].train()
    run = "/api/v1/runs/math/qwen3-8b-grpo"
    eventually(lambda: service.get(run).json().get("state"), lambda state: state == "finished")
