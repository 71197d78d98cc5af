"""Which receivers an owner's runs have."""

from __future__ import annotations

import pytest

from trmon.domain.alerts.delivery import Routes

ROUTES = Routes(receivers=("webhook", "slack"), by_owner={"ana": ("slack",), "bo": ()})


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param("ana", ("slack",), id="an owner with a route"),
        pytest.param("bo", (), id="an owner with an empty route"),
        pytest.param("cy", ("webhook", "slack"), id="an owner without a route"),
        pytest.param(None, ("webhook", "slack"), id="no owner"),
    ],
)
def test_receivers_follow_the_owners_route(owner: str | None, expected: tuple[str, ...]) -> None:
    assert ROUTES.of(owner) == expected
