"""What people see of trmon is what is recorded; `python -m tests.guards.recorder` records it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guards import mutants, recorder
from tests.guards.golden_files import GOLDENS, differences, golden
from tests.guards.recorded_service import RecordedService

ROUTES = "routes/all"
RECORDED_ELSEWHERE = ("GET /metrics", "GET /api/v1/events")
NAMES = sorted(path.relative_to(GOLDENS).with_suffix("").as_posix() for path in GOLDENS.glob("*/*.json"))
FAST_NAMES = [name for name in NAMES if name.partition("/")[0] in recorder.FAST]
SLOW_NAMES = [name for name in NAMES if name not in FAST_NAMES]


Documents = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[RecordedService, Path]]:
    """Return the service that all kinds are recorded from, and a folder for what is written."""
    with recorder.fresh() as fresh:
        yield fresh


@pytest.fixture(scope="module")
def texts(recorded: tuple[RecordedService, Path]) -> Documents:
    """Return what commands, wheels and the page say now; it is asked for before `answers`, which changes the runs."""
    return dict(recorder.documents(*recorded, recorder.SLOW))


@pytest.fixture(scope="module")
def answers(recorded: tuple[RecordedService, Path]) -> Documents:
    """Return what the service answers now."""
    return dict(recorder.documents(*recorded, recorder.FAST))


@pytest.mark.slow
@pytest.mark.server("chromium")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SLOW_NAMES)
def test_commands_wheels_and_the_page_say_what_is_recorded(texts: Documents, name: str) -> None:
    recorded, now = golden(name), texts.get(name)
    if name == "packages/imports" and now is not None:
        for what, of in recorded.items():
            assert now[what].pop("modules") <= of.pop("modules")
            assert now[what].pop("ours") <= of.pop("ours")
    assert differences(recorded, now) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAST_NAMES)
def test_the_service_answers_as_recorded(answers: Documents, name: str) -> None:
    assert differences(golden(name), answers.get(name)) == []


@pytest.mark.timeout(600)
def test_every_route_is_recorded(answers: Documents) -> None:
    assert [name for name in answers if name not in FAST_NAMES] == []
    requests = {request for name in FAST_NAMES if name != ROUTES for request in _requests(golden(name))}
    missing = [
        route
        for route in golden(ROUTES)
        if not any(_matches(route, request) for request in requests) and route not in RECORDED_ELSEWHERE
    ]
    assert missing == []


def _requests(document: Any) -> list[tuple[str, str]]:
    keys = [key.split(" ") for key in document if key.startswith(("GET /", "POST /", "PUT /", "PATCH /", "DELETE /"))]
    return [(method, path.partition("?")[0]) for method, path, *_ in keys]


def _matches(route: str, request: tuple[str, str]) -> bool:
    method, path = route.split(" ")
    # The identity of an alert has a slash.
    pattern = re.sub(r"\{[^}]+\}", "[^/]+", path.replace("{identity}", ".+"))
    return method == request[0] and re.fullmatch(pattern, request[1]) is not None


def test_the_code_that_each_mutant_changes_occurs_once() -> None:
    sources = mutants.product_sources()
    n_places = {code: len(mutants.places(code, sources)) for area in mutants.MUTANTS.values() for _, code, _ in area}
    assert {code: n for code, n in n_places.items() if n != 1} == {}
