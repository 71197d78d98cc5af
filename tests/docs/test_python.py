"""The notebook and the code of the page on Python, executed against a running service."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon_client.core import wire

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "notebooks" / "runs.ipynb"
PAGE = DOCS / "python.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def watched(service: ThreadedService, monkeypatch: pytest.MonkeyPatch) -> ThreadedService:
    """A service with a corrupt run, a healthy one and one without a step, which the environment names."""
    with service.client() as client:
        train(client, RunKey("math", "fine"), steps=range(4))
        send(client, RunKey("math", "old"), wire.Start(**ORIGIN))
        corrupt(client, MATH)
        eventually(lambda: client.get(f"/api/v1/runs/{MATH}").json()["status"]["verdict"]["kind"] == "act")
    monkeypatch.setenv("TRMON_URL", service.url)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return service


def execute(cells: list[str]) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), namespace)
    namespace["service"].close()
    return namespace


@pytest.mark.slow
def test_the_code_of_the_page_runs(watched: ThreadedService) -> None:
    cells = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(cells) > 5
    found = execute(cells)
    assert found["found"].findings[0].finding == "corrupt_logprobs"
    assert len(found["frame"]) == len(found["history"]) > 3
    assert found["note"].step == 3
    with watched.client() as client:
        assert client.get("/api/v1/runs/math/old").status_code == 404
        assert client.get(f"/api/v1/runs/{MATH}/notes").json()["items"] == []


@pytest.mark.slow
def test_the_notebook_runs(watched: ThreadedService) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    found = execute(["".join(cell["source"]) for cell in cells])
    assert found["worst"].name == str(MATH)
    assert found["diagnosis"].findings[0].finding == "corrupt_logprobs"
    assert [line.get_label() for line in found["axes"].get_lines()] == ["mask_rate", "invalid_fraction"]
    assert list(found["compared"].columns) == ["step", "math/grpo mask_rate", "math/fine mask_rate"]
    assert list(found["rates"]) == ["trm_max", "geo_mask", "seq_mis"]


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)
