"""A service with a healthy run, two ill ones and a long one, scraped by a real Prometheus for all tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import httpx
import pytest

from tests.fixtures.prometheus import prometheus, query, scraping
from tests.fixtures.replay import PROJECT, ReplayedRun, replaying
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import train_until_risk
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey

HEALTHY = ReplayedRun("healthy", "healthy")
ILL = ReplayedRun("ill", "stale", mode="enforce")
WARNED = ReplayedRun("warned", "stale")
"""Drift that does not collapse a run is a warning; where the masks are enforced, a mask rate of 0.9 is a page."""
LONG = "long"
"""The run of enough steps, in batches that are large enough, for a risk of collapse."""
FIRING = 'count(count by (severity) (trmon_alert_active{run="ill"} == 1)) >= 2'
"""A page and a warning of the ill run are firing."""
TOLD = "count(count by (severity) (trmon_incident_since_step)) == 2"
"""One ill run has an incident that pages, the other one that warns."""
RISK = 'trmon_collapse_risk{run="long"}'
"""The risk of the long run."""
SEEN = 'count_over_time(trmon_scalar{run="ill", name="grad_norm"}[1m]) > 2'
"""The trainer's metrics at the end of each step, scraped often enough for a range of one-second steps."""


@dataclass(frozen=True)
class Watched:
    """The API of Prometheus, the service's address and the time of the first scrape."""

    api: httpx.Client
    url: str
    since: float


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Replay the runs while they are scraped; their clients stay connected until the last test."""
    folder, since = tmp_path_factory.mktemp("watched"), time.time()
    service = ServiceProcess(folder / "data", public_url="http://localhost:8642")
    try:
        with (
            prometheus(folder, scraping(service.url)) as api,
            service.client() as client,
            replaying(client, HEALTHY, ILL, WARNED),
        ):
            train_until_risk(client, RunKey(PROJECT, LONG))
            for expression in (FIRING, TOLD, SEEN, RISK):
                eventually(partial(query, api, expression), timeout_seconds=60.0)
            yield Watched(api, service.url, since)
    finally:
        service.kill()
