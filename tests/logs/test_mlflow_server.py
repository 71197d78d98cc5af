"""A run of an MLflow server: its address, its metrics, and servers that answer with something else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from trmon.domain.errors import InvalidInput
from trmon.logs.mlflow_server import copy_run

RUN = "0123456789abcdef0123456789abcdef"
LARGEST = 1.7976931348623157e308
VALUES = {"loss": [0.5, 0.4, "NaN"], "actor/grad_norm": [0.1, LARGEST, 0.3]}


def _answer(path: str, query: dict[str, list[str]]) -> Any:
    """Answer as MLflow 3 does, with two values on a page."""
    if path.endswith("/runs/get"):
        return {"run": {"info": {"run_id": RUN}, "data": {"metrics": [{"key": name, "value": 0.0} for name in VALUES]}}}
    name, begin = query["metric_key"][0], int(query.get("page_token", ["0"])[0])
    values = [
        {"key": name, "value": value, "timestamp": str(1_700_000_000_000 + 60_000 * step), "step": str(step)}
        for step, value in enumerate(VALUES[name])
    ]
    page = {"metrics": values[begin : begin + 2]}
    return page | ({"next_page_token": str(begin + 2)} if begin + 2 < len(values) else {})


@contextmanager
def serving(*, answer: Any = _answer) -> Iterator[tuple[str, list[str | None]]]:
    """Run a server; yield its address and the credentials that it was sent."""
    sent: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Authorization"))
            url = urlsplit(self.path)
            body = json.dumps(answer(url.path, parse_qs(url.query))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("page", ["/#/experiments/0/runs/{run}", "/#/experiments/0/runs/{run}/model-metrics?x=1"])
def test_the_metrics_of_a_run_are_rows_by_step(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    with serving() as (url, sent):
        copy_run(url + page.format(run=RUN), tmp_path / "run.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert rows[:2] == [
        {"step": 0, "_timestamp": 1_700_000_000.0, "loss": 0.5, "actor/grad_norm": 0.1},
        {"step": 1, "_timestamp": 1_700_000_060.0, "loss": 0.4, "actor/grad_norm": float("inf")},
    ]
    assert (len(rows), str(rows[2]["loss"])) == (3, "nan")
    assert set(sent) == {"Bearer secret"}


def test_an_address_without_a_run_or_of_another_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"names no run of MLflow; copy the address of the run's page"):
        copy_run("http://127.0.0.1:9/#/experiments/0", tmp_path / "run.jsonl")
    with pytest.raises(InvalidInput, match="cannot be read from MLflow"):
        copy_run(f"http://127.0.0.1:9/#/experiments/0/runs/{RUN}", tmp_path / "run.jsonl")
    with serving(answer=lambda *_: ["hello"]) as (url, _), pytest.raises(InvalidInput, match="as an MLflow"):
        copy_run(f"{url}/#/experiments/0/runs/{RUN}", tmp_path / "run.jsonl")
