"""A service with a healthy run, two ill ones, an agent and a long one, scraped by a real Prometheus for all tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

import trmon_client as trmon
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
AGENT = "agent"
"""The run that sends every optional input: turns, logits, a reference policy, routers, and a soft policy."""
SOFT: dict[str, Any] = {
    "name": "soft",
    "criteria": [{"statistic": "max_abs_d", "upper": 0.2}],
    "turns": [{"statistic": "turn_max_abs_d", "upper": 0.2}],
    "soft_tau": 1.0,
}
LONG = "long"
"""The run of enough steps, in batches that are large enough, for a risk of collapse."""
AGENT_STEPS = 10
"""Too few for the warnings that its noise would raise."""
FIRING = 'count(count by (severity) (trmon_alert_active{run="ill"} == 1)) >= 2'
"""A page and a warning of the ill run are firing."""
TOLD = "count(count by (severity) (trmon_incident_since_step)) == 2"
"""One ill run has an incident that pages, the other one that warns."""
EVERY_INPUT = 'count_over_time(trmon_sequence_weight_mean{run="agent"}[1m]) > 2'
"""The run of the agent is scraped."""
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
            _agent(service.url),
        ):
            train_until_risk(client, RunKey(PROJECT, LONG))
            for expression in (FIRING, TOLD, SEEN, EVERY_INPUT, RISK):
                eventually(partial(query, api, expression), timeout_seconds=60.0)
            yield Watched(api, service.url, since)
    finally:
        service.kill()


@contextmanager
def _agent(url: str) -> Iterator[None]:
    """Train; the client stays until the context ends."""
    rng = np.random.default_rng(0)
    config = {"advantages_centred": True}
    with trmon.init(project=PROJECT, run=AGENT, url=url, policy=SOFT, mode="enforce", config=config) as monitor:
        for step in range(AGENT_STEPS):
            given = rng.normal(size=(8, 12, 7))
            pi, mu = given, given + 0.05 * rng.normal(size=given.shape)
            tokens = rng.integers(0, 7, (8, 12, 1))
            logprobs = _taken(pi, tokens)
            monitor.log_batch(
                step=step,
                rollout_logprobs=_taken(mu, tokens),
                old_logprobs=np.minimum(logprobs + 0.2 * rng.normal(size=(8, 12)), 0.0),
                logprobs=logprobs,
                rollout_logits=mu,
                logits=pi,
                tv=True,
                ref_logprobs=logprobs + 0.1 * rng.normal(size=(8, 12)),
                mask=np.ones((8, 12), bool),
                turn_ids=np.repeat(np.arange(3), 4)[None].repeat(8, 0),
                advantages=rng.normal(size=8),
                rewards=rng.uniform(size=8),
                versions=np.full(8, step),
                trainer_version=step,
            )
            scalars = {"grad_norm": 0.5, "grad_cosine": 0.1, "router_flip_rate": 0.01, "max_vio": 0.3}
            monitor.log_scalars(step, scalars)
        yield


def _taken(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the log-probs of sampled tokens, [B, T]."""
    shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.take_along_axis(shares, tokens, -1)[..., 0]
