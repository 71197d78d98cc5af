"""Whose token counts, what a caller without one is told, and what happens without a service or without the SDK."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.fixtures.assistant import COMMAND, Assistant, connected, over_stdio
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey


@pytest.fixture(scope="module")
def tokens(shared: httpx.Client) -> dict[str, str]:
    """The secrets of tokens by what they may do, of a service with a run in each of two projects."""
    train(shared)
    train(shared, RunKey("code", "ppo"))
    shared.headers["Authorization"] = f"Bearer {make_token(shared, 'root', Scope.ADMIN)}"
    return {
        "read": make_token(shared, "reader", Scope.READ),
        "math": make_token(shared, "math-reader", Scope.READ, project="math"),
        "ingest": make_token(shared, "trainer", Scope.INGEST),
    }


def runs_of(assistant: Assistant) -> set[str]:
    """Return the names of the runs that an assistant is shown."""
    return {run["run"] for run in assistant.ask("list_runs")["runs"]}


def test_the_token_of_the_environment_decides_what_is_shown(
    shared_service: ThreadedService, tokens: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(tokens["math"])
    with over_stdio(shared_service.url, token_file=str(file)) as assistant:
        assert runs_of(assistant) == {"math/grpo"}
        assert "no run 'code/ppo'" in assistant.refusal("diagnose_run", run="code/ppo")


def test_a_caller_is_told_how_to_start_a_service_and_to_set_a_token(serve: Serve) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with over_stdio(url) as assistant:
        refusal = assistant.refusal("list_runs")
        assert f"no service answers at {url}" in refusal
        assert "`trmon serve`" in refusal
        service = serve(port=int(url.rpartition(":")[2]))
        assert service.url == url
        assert assistant.ask("list_runs")["runs"] == []
        with service.client() as client:
            make_token(client, "root", Scope.ADMIN)
        assert "answered 401" in (refusal := assistant.refusal("list_runs"))
        assert "set TRMON_TOKEN" in refusal
        assert assistant.read("trmon://findings")


@pytest.fixture(scope="module")
def url(shared_service: ThreadedService, tokens: dict[str, str]) -> Iterator[str]:
    """The URL of streamable HTTP, served by a separate process whose environment has a token that reads everything."""
    port = free_port()
    started = [sys.executable, "-c", COMMAND, "mcp", "--url", shared_service.url, "--http-port", str(port)]
    environment = {**os.environ, "TRMON_TOKEN": tokens["read"]}
    process = subprocess.Popen(started, stderr=subprocess.PIPE, env=environment, text=True)
    try:
        eventually(lambda: _accepts(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def caller(url: str, token: str | None) -> Iterator[Assistant]:
    """Connect over HTTP, with a bearer token."""
    with connected(_transport(url, {"Authorization": f"Bearer {token}"} if token else {})) as assistant:
        yield assistant


@asynccontextmanager
async def _transport(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def test_over_http_each_request_has_the_rights_of_its_own_token(url: str, tokens: dict[str, str]) -> None:
    with caller(url, tokens["read"]) as everything, caller(url, tokens["math"]) as math:
        assert runs_of(everything) == {"math/grpo", "code/ppo"}
        assert runs_of(math) == {"math/grpo"}
    for token, said in (
        (None, "send the header Authorization: Bearer TOKEN"),
        ("unknown", "answered 401"),
        (tokens["ingest"], "lacks the scope 'read'"),
    ):
        with caller(url, token) as refused:
            assert said in refused.refusal("list_runs")


@pytest.mark.parametrize(("header", "status"), [("Host", 421), ("Origin", 403)])
def test_over_http_pages_of_other_sites_are_refused(url: str, header: str, status: int) -> None:
    headers = {header: "http://evil.example" if header == "Origin" else "evil.example"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    assert httpx2.post(url, json=asked, headers=headers | accepted, timeout=60).status_code == status


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['mcp'] = None; {COMMAND}"
    done = subprocess.run([sys.executable, "-c", code, "mcp"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert done.stderr == "trmon: trmon mcp needs mcp; pip install 'trmon[mcp]' brings it\n"
