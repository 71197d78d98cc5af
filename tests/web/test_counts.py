"""One illness is one everywhere: page, alerts, terminal, assistants, metrics and messages count and date alike."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

import trmon_client as trmon
from tests.fixtures.command import run_here
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting
from trmon.assistants.run_tools import list_runs
from trmon_client.api import Service

PROJECT = "counted"
N_STEPS, BROKE = 120, 60
ILL, ENDED_ILL, WARNED, WELL, ENDED_WARNED = "ill", "ended-ill", "warned", "well", "ended-warned"
KINDS = {ILL: "act", ENDED_ILL: "ended_ill", WARNED: "watch", WELL: "training_healthy", ENDED_WARNED: "finished"}
ENDED = (ENDED_ILL, ENDED_WARNED)


def course(name: str, step: int, noise: random.Random) -> dict[str, float]:
    """Return the scalars of a step: an ill run loses entropy, length and reward, a warned one entropy alone."""
    after = max(step - BROKE, 0)
    falls, fades = name in (ILL, ENDED_ILL), name != WELL
    reward = 0.4 * 0.93 ** max(after - 8, 0) if falls else 0.4
    return {
        "reward_mean": reward + noise.gauss(0, 0.01),
        "entropy": (1.0 + noise.gauss(0, 0.01)) * (0.93**after if fades else 1.0),
        "response_length_mean": (300 + noise.gauss(0, 5)) * (0.96**after if falls else 1.0),
        "grad_norm": math.exp(noise.gauss(0, 0.05)),
    }


@contextmanager
def counted_runs(client: httpx.Client, url: str) -> Iterator[None]:
    """Train the runs to where each has its verdict; those that have not ended train on until the context ends."""
    with ExitStack() as stack:
        for name in KINDS:
            noise = random.Random(7)
            monitor = stack.enter_context(trmon.init(project=PROJECT, run=name, url=url))
            for step in range(N_STEPS):
                monitor.log_scalars(step, course(name, step, noise))
            if name in ENDED:
                monitor.close()
        query = {"project": PROJECT}
        eventually(
            lambda: {run["run"]: run for run in client.get("/api/v1/fleet", params=query).json()["items"]},
            lambda runs: (
                {name: run["verdict"]["kind"] for name, run in runs.items()} == KINDS
                and all((run["judged_step"] or 0) >= N_STEPS - 2 for run in runs.values())
            ),
        )
        yield


COUNTS = {"needs you": 1, "to watch": 1, "ended ill": 1, "training healthy": 1, "finished": 1}
SAID = "1 run needs you, 1 to watch, 1 ended ill, 1 training healthy, 1 finished"
SINCE = {ILL: 61, ENDED_ILL: 61, WARNED: 89, ENDED_WARNED: 89}
ALERTS = {ILL: "page", WARNED: "warn"}
"""The alert that counts of each run that has one: that of an ill run with four findings is one."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ThreadedService, httpx.Client, WebhookServer]]:
    """Return a service over the five runs, and the receiver of its messages."""
    with WebhookServer() as receiver:
        service = ThreadedService(
            tmp_path_factory.mktemp("counted") / "data",
            stall_floor_seconds=36_000.0,
            grace_seconds=2.0,
            webhook_url=receiver.url,
            webhook_allow_hosts="127.0.0.1",
            public_url="http://127.0.0.1:8642",
        )
        with service.client() as client, counted_runs(client, service.url):
            yield service, client, receiver
        service.stop()


Told = tuple[ThreadedService, httpx.Client, WebhookServer]


def test_every_surface_counts_the_same_runs(told: Told, visiting: Visiting) -> None:
    service, client, _ = told
    assert Counter(run["verdict"]["counts_as"] for run in fleet(client)) == COUNTS
    page = visiting(service.url).go("/")
    expect(page.locator("h1")).to_have_text(SAID)
    expect(page).to_have_title(re.compile(r"^\(1\) Fleet"))
    assert run_here("top", "--once", "--url", service.url).stdout.splitlines()[0] == SAID
    with Service(service.url) as asked:
        assert list_runs(asked)["counts"] == COUNTS
    eventually(
        lambda: Counter(labels["counts_as"] for labels, _ in samples(client, "trmon_run_verdict")), COUNTS.__eq__
    )


def test_every_surface_counts_an_illness_once(told: Told, visiting: Visiting) -> None:
    service, client, receiver = told
    counted = {run["run"]: [alert["severity"] for alert in run["alerts"]] for run in fleet(client)}
    assert counted == {name: [ALERTS[name]] if name in ALERTS else [] for name in KINDS}
    page = visiting(service.url).go("/alerts")
    expect(page.locator("h1")).to_have_text("2 alerts fire, 2 unacknowledged")
    expect(page.get_by_text("3 symptoms").first).to_be_visible()
    page = visiting(service.url).go(f"/runs/{PROJECT}/{ILL}")
    expect(page.get_by_role("button", name="Acknowledge 1 alert")).to_be_visible()
    firing = {
        run["run"]: run["firing"] for run in client.get("/api/v1/runs", params={"project": PROJECT}).json()["items"]
    }
    assert firing == {name: ["entropy_collapse"] if name in ALERTS else [] for name in KINDS}
    assert {labels["run"]: (labels["severity"], n) for labels, n in samples(client, "trmon_run_alerts")} == {
        name: (severity, 1.0) for name, severity in ALERTS.items()
    }
    newest = {message["run"]["run"]: alert["status"] for message, alert in messages(receiver)}
    # The end of a run is not sent where its incident was first sent after it.
    assert {name for name, status in newest.items() if status == "firing"} - {ENDED_ILL, ENDED_WARNED} == set(ALERTS)
    shown = run_here("show", f"{PROJECT}/{ILL}", "--url", service.url).stdout
    assert re.findall("^(?:page|warn): .*", shown, re.MULTILINE) == ["page: entropy collapse since step 61"]


def test_every_surface_names_the_step_at_which_the_illness_began(told: Told, visiting: Visiting) -> None:
    service, client, receiver = told
    since = SINCE | {WELL: None}
    assert {run["run"]: run["verdict"]["since_step"] for run in fleet(client)} == since
    assert {run["run"]: alert["step"] for run in fleet(client) for alert in run["alerts"]} == {
        name: SINCE[name] for name in ALERTS
    }
    listed = client.get("/api/v1/alerts", params={"project": PROJECT}).json()["items"]
    assert {alert["run"]: alert["step"] for alert in listed if alert["rule"] == "incident"} == SINCE
    assert {
        name: client.get(f"/api/v1/runs/{PROJECT}/{name}/diagnosis").json()["since_step"] for name in KINDS
    } == since
    assert {labels["run"]: int(step) for labels, step in samples(client, "trmon_run_since_step")} == SINCE
    newest = {message["run"]["run"]: alert for message, alert in messages(receiver)}
    assert {name: alert["since_step"] for name, alert in newest.items()} == SINCE
    for name, step in SINCE.items():
        assert f"since step {step} (last good step 60)" in newest[name]["summary"]
        assert newest[name]["url"].endswith(f"/{name}?step={step}")
        assert f"since step {step}" in run_here("show", f"{PROJECT}/{name}", "--url", service.url).stdout
    page = visiting(service.url).go("/")
    for name, step in SINCE.items():
        expect(page.locator(f"a[href$='/{name}?step={step}']")).to_be_visible()
        expect(page.locator("tr", has=page.locator(f"a[href*='/{name}?']"))).to_contain_text(f"since step {step}")
    page = visiting(service.url).go("/alerts")
    for name in ALERTS:
        expect(page.locator(f"a[href$='/{name}?step={SINCE[name]}']")).to_be_visible()
    page = visiting(service.url).go(f"/runs/{PROJECT}/{ILL}")
    expect(page.get_by_label("Diagnosis").first).to_contain_text("Began at step 61")


def test_a_run_that_ended_with_a_warning_looks_like_one_to_watch(told: Told, visiting: Visiting) -> None:
    def background(run: str) -> str:
        card = visiting(told[0].url).go(f"/runs/{PROJECT}/{run}").get_by_label("Diagnosis").locator(".card")
        colour: str = card.evaluate("card => getComputedStyle(card).backgroundColor")
        return colour

    assert background(ENDED_WARNED) == background(WARNED) != background(WELL)


def fleet(client: httpx.Client) -> list[dict[str, Any]]:
    return list(client.get("/api/v1/fleet", params={"project": PROJECT}).json()["items"])


def samples(client: httpx.Client, metric: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and the value of each sample of a metric."""
    found = re.findall(rf"^{metric}{{(.*)}} (.*)$", client.get("/metrics").text, re.MULTILINE)
    return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]


def messages(receiver: WebhookServer) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the messages in order, each with its alert, once the newest of every illness has its step."""

    def posted() -> list[tuple[dict[str, Any], dict[str, Any]]]:
        found = [json.loads(one.body) for one in list(receiver.posted)]
        return [(message, message["alerts"][-1]) for message in found]

    return eventually(
        posted, lambda found: {message["run"]["run"]: alert["since_step"] for message, alert in found} == SINCE
    )
