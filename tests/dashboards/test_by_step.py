"""The dashboard over PostgreSQL: its SQL returns what the API returns, for each step, to the last bit."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from dashboards.source import by_step
from dashboards.source.__main__ import FOLDER
from tests.dashboards.lint import Json, known_to_grafana, panels, substituted, variables
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.replay import ReplayedRun, replaying
from tests.fixtures.service import ThreadedService

pytestmark = pytest.mark.server("postgres")

SHOWN: Json = json.loads((FOLDER / "postgresql" / "run-by-step.json").read_text())
CHOSEN = {"project": "'math'", "run": "'ill'", "scalar": "'grad_norm'", "datasource": "postgres"}
"""As Grafana's format `sqlstring` quotes them."""
PATH = "/api/v1/runs/math/ill"
NUMBERS = {
    "Reward": ("signals", "reward_mean"),
    "KL per token": ("signals", "total_kl_k3"),
    "Effective share of tokens": ("signals", "total_ess_token"),
    "Response length": ("signals", "response_length_mean"),
    "$scalar": ("scalars", "grad_norm"),
}


@pytest.fixture(scope="module")
def database(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Postgres, postgres_template: str
) -> Iterator[tuple[str, httpx.Client]]:
    """The URL of a database into which a run was replayed, and the client of its service."""
    url = postgres_server.database(template=postgres_template)
    folder = tmp_path_factory.mktemp("by-step")
    service = ThreadedService(folder / "data", database_url=url)
    try:
        with (
            WorkerProcess(url, log=folder / "worker.log"),
            service.client() as client,
            replaying(client, ReplayedRun("ill", "stale")),
        ):
            yield url, client
    finally:
        service.stop()
        postgres_server.drop(url)


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(substituted(query, CHOSEN)).fetchall()  # type: ignore[call-overload, no-any-return]


def query_of(title: str) -> str:
    [target] = next(panel for panel in panels(SHOWN) if panel["title"] == title)["targets"]
    return str(target["rawSql"])


def averaged(batches: list[Json], read: str, name: str) -> dict[int, float]:
    """Return the mean of the known values of each step."""
    known: dict[int, list[float]] = {}
    for batch in batches:
        value = batch[read].get(name)
        if isinstance(value, float | int) and math.isfinite(value):
            known.setdefault(batch["step"], []).append(value)
    return {step: sum(values) / len(values) for step, values in known.items()}


def test_grafanas_published_model_knows_every_field() -> None:
    assert known_to_grafana(SHOWN) == SHOWN


def test_numbers_by_step_are_those_of_the_api(database: tuple[str, httpx.Client]) -> None:
    url, client = database
    batches = client.get(f"{PATH}/batches", params={"limit": 500}).json()["items"]
    for title, (read, name) in NUMBERS.items():
        expected = averaged(batches, read, name)
        assert len(expected) == 40, title
        found = {step: value for step, value in rows(url, query_of(title)) if value is not None}
        assert found == pytest.approx(expected, rel=1e-12), title


def test_the_rejected_share_by_step_is_that_of_the_active_policy(database: tuple[str, httpx.Client]) -> None:
    url, client = database
    found = client.get(f"{PATH}/reasons").json()
    expected = dict(zip(found["steps"], found["mask_rate"], strict=True))
    assert dict(rows(url, query_of("Rejected"))) == pytest.approx(expected)


def test_every_variable_offers_values(database: tuple[str, httpx.Client]) -> None:
    offered = {one["name"]: {value for (value,) in rows(database[0], one["query"])} for one in variables(SHOWN)}
    for name, value in {"project": "math", "run": "ill", "scalar": "grad_norm"}.items():
        assert value in offered[name]


def test_numbers_that_are_not_finite_are_unknown_and_all_others_exact(database: tuple[str, httpx.Client]) -> None:
    numbers = [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, -1e-300, math.nan, math.inf, -math.inf, math.pi]
    packed = [struct.pack("<d", value).hex() for value in numbers]
    stored = ", ".join(f"({i}, 1, decode('{value}', 'hex'))" for i, value in enumerate(packed))
    tables = f"batch(step, signal_names, signals) AS (VALUES {stored}), name_set(id, names) AS (VALUES (1, '[\"x\"]'))"
    query = by_step.signal_by_step("x").replace("JOIN newest ON b.attempt_id = newest.attempt_id", "")
    found = [value for _, value in rows(database[0], f"WITH {tables}, {query.removeprefix('WITH ')}")]
    assert found == [value if math.isfinite(value) else None for value in numbers]
