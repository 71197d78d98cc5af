"""A real service with two real runs, a healthy and an ill one, scraped by a real Prometheus; once for all queries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import httpx
import pytest

from tests.fixtures.prometheus import prometheus, query, scraping
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from trmon.lab.config import LabConfig
from trmon.lab.injection import Injection
from trmon.lab.watched import train

N_STEPS = 36
HEALTHY = LabConfig.healthy(seed=0)
ILL = replace(LabConfig.injected(Injection.PAD, seed=0), onset_step=18, ramp_steps=2)
FIRING = 'count(count by (severity) (trmon_alert_active{run="ill"} == 1)) >= 2'
"""A page and a warning of the ill run."""
SEEN = 'count_over_time(trmon_scalar{run="ill", name="grad_norm"}[1m]) > 2'
"""What the trainer logs when a step ends, long enough for a range of one second's steps."""


@dataclass(frozen=True)
class Watched:
    """Prometheus' API, the service's address and when the first scrape was."""

    api: httpx.Client
    url: str
    since: float


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Train both runs while they are scraped; they are not at their end yet when the first question is asked."""
    folder, since = tmp_path_factory.mktemp("watched"), time.time()
    service = ServiceProcess(folder / "data", public_url="http://trmon.example:8642")
    try:
        with prometheus(folder, scraping(service.url)) as api:
            runs = [
                train(config, url=service.url, project="lab", name=name)
                for name, config in (("healthy", HEALTHY), ("ill", ILL))
            ]
            for run in runs:
                for _ in range(N_STEPS):
                    next(run)
            for told in (FIRING, SEEN):
                eventually(partial(query, api, told), timeout_seconds=60.0)
            yield Watched(api, service.url, since)
            for run in runs:
                run.close()
    finally:
        service.kill()
