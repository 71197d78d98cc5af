"""A running service for each test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.service import ServiceProcess, ThreadedService
from trmon.domain.access import Scope

Serve = Callable[..., ThreadedService]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts services with settings of the test's choice; all end with the test."""
    started: list[ThreadedService] = []

    def start(**settings: Any) -> ThreadedService:
        started.append(ThreadedService(tmp_path / f"data-{len(started)}", **settings))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture
def service(serve: Serve) -> ThreadedService:
    """A service with default settings."""
    return serve()


@pytest.fixture
def client(service: ThreadedService) -> Iterator[httpx.Client]:
    """A client of the service."""
    with service.client() as client:
        yield client


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServiceProcess]:
    """`trmon serve` in a process of its own."""
    process = ServiceProcess(tmp_path / "data")
    yield process
    if process.process.poll() is None:
        process.kill()


@pytest.fixture
def admin(client: httpx.Client) -> httpx.Client:
    """The client with an admin token, which ends open access."""
    client.headers["Authorization"] = f"Bearer {make_token(client, 'root', Scope.ADMIN)}"
    return client


def make_token(client: httpx.Client, name: str, *scopes: Scope, project: str | None = None) -> str:
    """Return the secret of a new token."""
    wanted = {"name": name, "scopes": [scope.value for scope in scopes], "project": project}
    made = client.post("/api/v1/tokens", json=wanted)
    assert made.status_code == 201, made.text
    secret: str = made.json()["secret"]
    return secret
