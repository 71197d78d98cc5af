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


@pytest.fixture
def tokens(service: ThreadedService) -> dict[str, str]:
    """The secrets of tokens by what they may do, of a service with a run in each of two projects."""
    with service.client() as client:
        train(client)
        train(client, RunKey("code", "ppo"))
        root = make_token(client, "root", Scope.ADMIN)
        client.headers["Authorization"] = f"Bearer {root}"
        return {
            "read": make_token(client, "reader", Scope.READ),
            "math": make_token(client, "math-reader", Scope.READ, project="math"),
            "ingest": make_token(client, "trainer", Scope.INGEST),
        }


def runs_of(assistant: Assistant) -> set[str]:
    """Return the names of the runs that an assistant is shown."""
    return {run["run"] for run in assistant.ask("list_runs")["runs"]}


def test_the_token_of_the_environment_decides_what_is_shown(
    service: ThreadedService, tokens: dict[str, str], tmp_path: Path
) -> None:
    with over_stdio(service.url, token=tokens["read"]) as assistant:
        assert runs_of(assistant) == {"math/grpo", "code/ppo"}
    file = tmp_path / "token"
    file.write_text(tokens["math"])
    with over_stdio(service.url, token_file=str(file)) as assistant:
        assert runs_of(assistant) == {"math/grpo"}
        assert "no run 'code/ppo'" in assistant.refusal("diagnose_run", run="code/ppo")


def test_a_caller_is_told_what_its_token_lacks(service: ThreadedService, tokens: dict[str, str]) -> None:
    with over_stdio(service.url) as assistant:
        assert "answered 401" in (refusal := assistant.refusal("list_runs"))
        assert "set TRMON_TOKEN" in refusal
        assert assistant.read("trmon://findings")
    with over_stdio(service.url, token=tokens["ingest"]) as assistant:
        assert "lacks the scope 'read'" in assistant.refusal("list_runs")


def test_without_a_service_the_assistant_is_told_how_to_start_one(serve: Serve) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with over_stdio(url) as assistant:
        refusal = assistant.refusal("list_runs")
        assert f"no service answers at {url}" in refusal
        assert "`trmon serve`" in refusal
        service = serve(port=int(url.rpartition(":")[2]))
        assert service.url == url
        assert assistant.ask("list_runs")["runs"] == []


@contextmanager
def over_http(service: ThreadedService, **variables: str) -> Iterator[str]:
    """Serve streamable HTTP in a separate process, and yield its URL."""
    port = free_port()
    started = [sys.executable, "-c", COMMAND, "mcp", "--url", service.url, "--http-port", str(port)]
    process = subprocess.Popen(started, stderr=subprocess.PIPE, env=_environment(variables), text=True)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        eventually(lambda: _accepts(port))
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _environment(variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **{f"TRMON_{name.upper()}": value for name, value in variables.items()}}


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


def test_over_http_each_request_has_the_rights_of_its_own_token(
    service: ThreadedService, tokens: dict[str, str]
) -> None:
    with over_http(service, token=tokens["read"]) as url:
        with caller(url, tokens["read"]) as everything, caller(url, tokens["math"]) as math:
            assert runs_of(everything) == {"math/grpo", "code/ppo"}
            assert runs_of(math) == {"math/grpo"}
        with caller(url, None) as nobody:
            assert "send the header Authorization: Bearer TOKEN" in nobody.refusal("list_runs")
        with caller(url, "unknown") as stranger:
            assert "answered 401" in stranger.refusal("list_runs")


@pytest.mark.parametrize(("header", "status"), [("Host", 421), ("Origin", 403)])
def test_over_http_pages_of_other_sites_are_refused(service: ThreadedService, header: str, status: int) -> None:
    with over_http(service) as url:
        headers = {header: "http://evil.example" if header == "Origin" else "evil.example"}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accepted = {"Accept": "application/json, text/event-stream"}
        assert httpx2.post(url, json=asked, headers=headers | accepted, timeout=60).status_code == status


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['mcp'] = None; {COMMAND}"
    done = subprocess.run([sys.executable, "-c", code, "mcp"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert done.stderr == "trmon: trmon mcp needs mcp; pip install 'trmon[mcp]' brings it\n"
