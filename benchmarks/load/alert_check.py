"""Checks the alerts of a soak: each drift is announced, once, and each notification arrives, once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from benchmarks.load.connection import Connection
from benchmarks.load.sending import Place
from benchmarks.load.verification import CLOSE_SECONDS, items
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.receiver import WebhookServer

DRIFT_RULE = "engine_mismatch"
FIRES_AFTER_STEPS = 30
"""So many steps of a drift suffice for its alert."""
FIRING = "firing"

Page: TypeAlias = tuple[str, str, int, str]
"""The key of a notification: the run, the rule, the first step, and whether it fires or has resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCheck:
    """Counts of alert events and notifications.

    `missing_events` counts drifts without an alert; `missing_pages` notifications that the service marked as
    delivered but the receiver did not get; `rules` the alerts of each rule that fired.
    """

    n_events: int
    repeated_events: int
    missing_events: int
    n_pages: int
    repeated_pages: int
    missing_pages: int
    rules: Mapping[str, int]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was missing or repeated."""
        return not (self.repeated_events or self.missing_events or self.repeated_pages or self.missing_pages)


def check_alerts(url: str, pager: WebhookServer, workload: Workload, acknowledged: list[Place]) -> AlertCheck:
    """Return the counts, once no notification is pending."""
    events = _events(url)
    states = [[event["state"] for event in of_alert] for of_alert in events]
    delivered, pages = _delivered(url), _pages(pager)
    fired = [event for of_alert in events for event in of_alert if event["state"] == FIRING]
    return AlertCheck(
        n_events=sum(map(len, events)),
        repeated_events=sum(one == other for of_alert in states for one, other in pairwise(of_alert)),
        missing_events=_missing_drifts(fired, workload, acknowledged),
        n_pages=len(pages),
        repeated_pages=pages.total() - len(pages),
        missing_pages=len(delivered - pages.keys()),
        rules=Counter(event["rule"] for event in fired),
    )


def _events(url: str) -> list[list[dict[str, Any]]]:
    """Return the events of each alert, oldest first; two equal states in a row are a repetition."""
    connection = Connection(url)
    alerts = {alert["identity"]: alert for alert in items(connection, f"/api/v1/alerts?project={PROJECT}")}
    found = []
    for identity, alert in alerts.items():
        events = list(items(connection, f"/api/v1/alerts/events?identity={identity}"))
        found.append([{"run": alert["run"], "rule": alert["rule"], **event} for event in reversed(events)])
    connection.close()
    return found


def _missing_drifts(fired: list[dict[str, Any]], workload: Workload, acknowledged: list[Place]) -> int:
    """Return how many drifts, acknowledged for long enough, have no alert."""
    assert workload.drift_from is not None
    assert workload.drift_steps is not None
    ranks = Counter((run, step) for run, step, _ in acknowledged)
    missing = 0
    for run in range(workload.n_runs):
        steps = [event["step"] for event in fired if (event["run"], event["rule"]) == (workload.run(run), DRIFT_RULE)]
        last = max((step for (of, step), n in ranks.items() if of == run and n == workload.n_ranks), default=-1)
        for first in range(workload.drift_from, last - FIRES_AFTER_STEPS, 2 * workload.drift_steps):
            missing += not any(first <= step < first + workload.drift_steps for step in steps)
    return missing


def _delivered(url: str) -> set[Page]:
    """Return the notifications that the service marked as delivered, once none is pending."""
    connection = Connection(url)
    deadline = time.monotonic() + CLOSE_SECONDS
    path = f"/api/v1/deliveries?project={PROJECT}&state="
    while any(items(connection, f"{path}due")):
        assert time.monotonic() < deadline, f"deliveries still wait after {CLOSE_SECONDS} s"
        time.sleep(0.2)
    delivered = {
        _page(one["run"], one["body"]["alert"], one["told_state"]) for one in items(connection, f"{path}delivered")
    }
    connection.close()
    return delivered


def _pages(pager: WebhookServer) -> Counter[Page]:
    """Return the received notifications with their counts; a retry with the same key is not a repetition.

    Those of an attack's runs, which stall, are left out.
    """
    messages = (json.loads(posted.body) for posted in pager.posted)
    of_workload = [message for message in messages if message["run"]["project"] == PROJECT]
    received = {alert["key"]: (message["run"]["run"], alert) for message in of_workload for alert in message["alerts"]}
    return Counter(_page(run, alert, alert["status"]) for run, alert in received.values())


def _page(run: str, alert: Mapping[str, Any], state: str) -> Page:
    return run, alert["rule"], alert["since_step"], state
