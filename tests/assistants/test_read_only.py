"""Tools only read, whatever an assistant is made to ask: any argument is answered or refused in words."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.fixtures.assistant import COMMAND, Assistant, connected
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import corrupt, finish, train
from tests.fixtures.waiting import eventually
from trmon.assistants.server import MAX_ANSWER_BYTES, TOOLS, build_server
from trmon.bootstrap.app import create_app
from trmon.config.settings import Settings
from trmon.domain.access import Scope as TokenScope
from trmon.domain.identity import RunKey
from trmon_client.api import Service

RUN = "math/grpo"
QUESTIONS: dict[str, dict[str, Any]] = {
    "list_runs": {},
    "diagnose_run": {"run": RUN},
    "describe_run": {"run": RUN},
    "list_signal_names": {"run": RUN},
    "read_signals": {"run": RUN, "names": ["mask_rate"]},
    "worst_sequences": {"run": RUN, "step": 1},
    "list_alerts": {},
    "list_notes": {"run": RUN},
    "compare_runs": {"runs": [RUN, "math/ill"]},
    "what_if_policy": {"run": RUN, "policy": "geo_mask"},
    "run_budget": {"run": RUN},
    "collapse_risk": {"run": RUN},
    "explain": {"name": "stale_rollouts"},
}
LAST_USE = ("token", "last_used_at")
"""What the service itself notes of every request with a token, whoever makes it."""


class RequestLog:
    """Records the method and the path of each request, in front of the whole application."""

    def __init__(self, app: ASGIApp, *, seen: list[tuple[str, str]]) -> None:
        self._app, self._seen = app, seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            self._seen.append((scope["method"], scope["path"]))
        await self._app(scope, receive, send)


@pytest.fixture
def seen() -> list[tuple[str, str]]:
    """The requests that reach the service."""
    return []


@pytest.fixture
def service(tmp_path: Path, seen: list[tuple[str, str]]) -> Iterator[ThreadedService]:
    """A service that records its requests, with two runs."""

    def app_of(settings: Settings) -> FastAPI:
        app = create_app(settings)
        app.add_middleware(RequestLog, seen=seen)
        return app

    service = ThreadedService(tmp_path / "data", app_of=app_of)
    with service.client() as client:
        corrupt(client, RunKey("math", "ill"))
        # A step left open would close by itself, a minute later.
        finish(client, RunKey("math", "ill"), steps=range(6))
        train(client, steps=range(30))
    yield service
    service.stop()


def rows(service: ThreadedService) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, without the time of a token's last use."""
    file = service.data_dir / "trmon.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: database.execute(f"SELECT {_columns(database, table)} FROM {table}").fetchall() for table in tables
        }


def _columns(database: sqlite3.Connection, table: str) -> str:
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    return ", ".join(f'"{name}"' for name in names if (table, name) != LAST_USE)


def settled(service: ThreadedService) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows once the worker has nothing more to write."""
    states = [rows(service)]

    def unchanged() -> bool:
        states.append(rows(service))
        return states[-1] == states[-2] and bool(states[-1]["run_state"])

    eventually(unchanged)
    return states[-1]


def test_every_tool_is_asked() -> None:
    assert list(QUESTIONS) == [tool.__name__ for tool in TOOLS]


def test_tools_change_nothing_even_with_the_token_of_an_admin(
    service: ThreadedService, seen: list[tuple[str, str]]
) -> None:
    with service.client() as client:
        secret = make_token(client, "root", TokenScope.ADMIN, TokenScope.READ)
    before = settled(service)
    seen.clear()
    with Service(service.url, secret) as reader, connected(build_server(reader)) as assistant:
        for tool, arguments in QUESTIONS.items():
            assert assistant.ask(tool, **arguments)
    asked = set(seen)
    assert {path for method, path in asked if method != "GET"} == {f"/api/v1/runs/{RUN}/whatif"}
    assert {method for method, _ in asked} == {"GET", "POST"}
    after = rows(service)
    assert {table for table in after if after[table] != before[table]} == set()
    assert [row for row in after["audit"] if "token.create" not in row] == []


HOSTILE: tuple[Any, ...] = (
    *("", "/", "..", "math/..", "../../admin/tokens", "math%2fgrpo", "math/grpo?x=1", "math/grpo#x"),
    *("math/grpo\r\nHost: evil", "http://169.254.169.254/latest", "//evil.example/x", "math/\0"),
    *("\u202emath/grpo", "\x1b[2J", "${jndi:ldap://x}", "<script>", "x" * 100_000, "\u0660" * 400),
    *(None, True, -1, 0, 1 << 70, -(1 << 63), 1e308, [], {}, [[]], ["math/grpo"] * 500, {"a": {"b": {}}}),
)
PATHS = (
    *("../../api/v1/tokens", "math/grpo/../../tokens", "..%2f..%2ftokens"),
    *("math/grpo?include=notes", "math/../tokens"),
)
N_TRIED = 5
"""Values for each argument; the next argument, or tool, gets others."""


@pytest.fixture(scope="module")
def assistant(shared_service: ThreadedService, shared: httpx.Client) -> Iterator[Assistant]:
    """An assistant of a service with two runs."""
    train(shared, steps=range(6))
    with Service(shared_service.url) as reader, connected(build_server(reader)) as assistant:
        yield assistant


def said(assistant: Assistant, tool: str, arguments: dict[str, Any]) -> str:
    """Return what a model reads of the answer or the refusal; what the SDK itself refuses is one too."""
    try:
        result = assistant._call(tool, arguments)
    except Exception as refusal:
        return str(refusal)
    return "".join(content.text for content in result.content)  # type: ignore[union-attr]


@pytest.mark.parametrize("tool", QUESTIONS)
def test_any_argument_is_answered_or_refused_in_words(assistant: Assistant, tool: str) -> None:
    usual, first = QUESTIONS[tool], list(QUESTIONS).index(tool)
    names = {name for one in assistant.tools() if one.name == tool for name in one.input_schema["properties"]}
    for start, name in enumerate(sorted(names), 2 * first):
        for value in islice(cycle(HOSTILE), start * N_TRIED, (start + 1) * N_TRIED):
            answer = said(assistant, tool, {**usual, name: value})
            assert "Traceback" not in answer, (name, value)
            assert "Internal" not in answer, (name, value, answer)
            assert len(answer.encode()) <= 2 * MAX_ANSWER_BYTES, (name, value)
    assert said(assistant, tool, {**usual, "no_such": 1})
    assert assistant.ask("list_runs")["runs"], "the server still answers"


def test_no_argument_reaches_another_path_of_the_service(assistant: Assistant) -> None:
    reading_one = {tool: usual for tool, usual in QUESTIONS.items() if "run" in usual}
    for run in PATHS:
        for tool, usual in reading_one.items():
            answer = said(assistant, tool, {**usual, "run": run})
            refusals = ("is not a valid name", "PROJECT/RUN", "no run")
            assert any(refusal in answer for refusal in refusals), (tool, run, answer)


GARBAGE = (
    *(b"garbage", b"{", b"[]", b"null", b"\xff\xfe\0", b"[" * 100_000),
    b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"diagnose_run","arguments":{"run":"\\ud83d"}}}',
    b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"' + b"x" * 1_000_000 + b'"}}',
)


def test_lines_that_are_no_messages_do_not_end_the_server() -> None:
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}).encode(),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        *GARBAGE,
        b'{"jsonrpc":"2.0","id":99,"method":"tools/list"}',
    ]
    command = [sys.executable, "-c", COMMAND, "mcp", "--url", "http://127.0.0.1:9"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answered = next(line for line in server.stdout if b'"id":99' in line)
        server.stdin.close()
        assert b"diagnose_run" in answered
        assert server.wait(60) == 0
