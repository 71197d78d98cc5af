"""Who hears of whose runs."""

from __future__ import annotations

import pytest

from trmon.domain.alerts.routing import Routes

ROUTES = Routes(receivers=("webhook", "slack"), by_owner={"ana": ("slack",), "bo": ()})


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param("ana", ("slack",), id="an owner with a route"),
        pytest.param("bo", (), id="an owner who wants to hear nothing"),
        pytest.param("cy", ("webhook", "slack"), id="an owner without one"),
        pytest.param(None, ("webhook", "slack"), id="no owner"),
    ],
)
def test_an_owners_receivers_hear(owner: str | None, expected: tuple[str, ...]) -> None:
    assert ROUTES.of(owner) == expected
