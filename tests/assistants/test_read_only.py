"""Proof that tools only read: what reaches the service, and that its database stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.fixtures.assistant import over_stdio
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import corrupt, finish, train
from tests.fixtures.waiting import eventually
from trmon.assistants.server import TOOLS
from trmon.bootstrap.app import create_app
from trmon.config.settings import Settings
from trmon.domain.access import Scope as TokenScope
from trmon.domain.identity import RunKey

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
    with over_stdio(service.url, token=secret) as assistant:
        for tool, arguments in QUESTIONS.items():
            assert assistant.ask(tool, **arguments)
    asked = set(seen)
    assert {path for method, path in asked if method != "GET"} == {f"/api/v1/runs/{RUN}/whatif"}
    assert {method for method, _ in asked} == {"GET", "POST"}
    after = rows(service)
    assert {table for table in after if after[table] != before[table]} == set()
    assert [row for row in after["audit"] if "token.create" not in row] == []
