"""Provides a real Redis server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.redis import Redis


@pytest.fixture
def server() -> Iterator[Redis]:
    """A running server."""
    with Redis() as server:
        yield server
