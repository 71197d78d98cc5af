"""The code for TRL in "README.md" and "trl.md", run."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.docs.code_blocks import Block, blocks
from tests.fixtures.waiting import eventually
from tests.peers.trl.tiny import grpo

BLOCKS = [
    block
    for block in blocks("python")
    if block.page in ("README.md", "docs/integrations/trl.md") and "integrations.trl import attach" in block.text
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_code_of_the_page_reports_a_run(
    block: Block, tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    code = block.text.replace("http://127.0.0.1:8642", str(service.base_url).rstrip("/"))
    # The page leaves the arguments out.
    names = {"GRPOTrainer": lambda **_: grpo(tmp_path), "trainer": grpo(tmp_path)}
    exec(code, names)
    if "trainer.train()" not in code:
        names["trainer"].train()
    run = "/api/v1/runs/math/qwen3-8b-grpo"
    eventually(lambda: service.get(run).json().get("state"), lambda state: state == "finished")


def test_both_pages_have_such_code() -> None:
    assert [block.page for block in BLOCKS] == ["README.md", "docs/integrations/trl.md"]
