"""The risk of a collapse on the page: its chart with drivers, the line of the diagnosis and the badge of the fleet."""

from __future__ import annotations

import math
import re
from typing import Any

from playwright.sync_api import expect

from tests.fixtures.browser import PHONE
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train_until_risk
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Visiting
from trmon_client.core.signals.catalogue import signal_words

SHOWN = 6


def risk_of(service: ThreadedService) -> dict[str, Any]:
    """Return the risk of a run that has one, and leave the run as it is."""
    with service.client() as client:
        newest_step = train_until_risk(client)
        path = f"/api/v1/runs/{MATH}/diagnosis"
        found = eventually(lambda: client.get(path).json(), lambda answer: answer.get("step") == newest_step)
        risk: dict[str, Any] = found["collapse_risk"]
        return risk


def percent(share: float) -> str:
    """Return a share as the page writes it: halves are rounded up, where Python rounds them to even."""
    return f"{math.floor(share * 100 + 0.5)}%"


def test_the_chart_has_its_thresholds_and_what_drives_it(serve: Serve, port: int, visiting: Visiting) -> None:
    service = serve(port=port, grace_seconds=2.0)
    risk = risk_of(service)
    tab = visiting(service.url, size=PHONE)
    figure = tab.go(f"/runs/{MATH}").locator("figure", has_text="Risk of collapse")
    expect(figure).to_contain_text(f"warns at {percent(risk['warn_at'])}; {risk['calibration']}")
    largest = sorted(risk["drivers"], key=lambda driver: -abs(driver["log_odds"]))[:SHOWN]
    lines = sorted(largest, key=lambda driver: -driver["log_odds"])
    expect(figure.locator("li")).to_have_text(
        [re.compile(f"^{re.escape(driver['words'])}[+−]{abs(driver['log_odds']):.2f}$") for driver in lines]
    )
    if risk["missing"]:
        expect(figure).to_contain_text(f"Not sent: {', '.join(map(signal_words, risk['missing']))}.")
    assert tab.overflow_pixels == 0


def test_a_line_and_a_badge_say_it_while_it_is_at_a_threshold_alone(evaluate: Evaluate) -> None:
    said = evaluate(
        """async () => {
            const { riskLine } = await import("/assets/any/diagnosis.js");
            const { riskBadge } = await import("/assets/any/fleetrows.js");
            const driven_by = ["gradient norm", "reward"];
            const calibration = "not calibrated for your trainer";
            const risk = (level) => ({ probability: 0.634, level, horizon_steps: 200, driven_by, calibration });
            const text = (element) => element?.textContent ?? null;
            return ["low", "warn", "page", "past"].map((level) => [
                text(riskLine({ diagnosis: { collapse_risk: risk(level) } })),
                text(riskBadge({ collapse_risk: risk(level) })),
            ]).concat([[text(riskLine({ diagnosis: null })), text(riskBadge({ collapse_risk: null }))]]);
        }"""
    )
    within = "63% risk of collapse within 200 steps (not calibrated for your trainer)"
    told = [f"{within}, driven by gradient norm and reward", "63% risk"]
    assert said == [[None, None], told, told, [None, None], [None, None]]
