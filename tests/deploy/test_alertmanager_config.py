"""deploy/alertmanager: amtool accepts the configuration, and every alert has a receiver."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fixtures.prometheus import binary

pytestmark = pytest.mark.server("amtool")

CONFIG = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"


def amtool(*arguments: str) -> str:
    done = subprocess.run([binary("amtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_amtool_accepts_the_configuration() -> None:
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=page", "alertname=TrmonDown"), "on-call"),
        (("severity=page", "alertname=corrupt_logprobs", "run=grpo", "owner=ana"), "on-call"),
        (("severity=warn", "alertname=TrmonCloseLag"), "team"),
        (("severity=warn", "alertname=mask_rate", "run=grpo"), "team"),
        (("severity=info", "alertname=vacuous_bound", "run=grpo"), "discard"),
        (("alertname=SomebodyElses",), "team"),
    ],
    ids=["trmon is down", "a run's page", "trmon lags", "a run's warning", "an info", "no severity"],
)
def test_an_alert_finds_its_receiver(labels: tuple[str, ...], receiver: str) -> None:
    shown = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels)
    assert shown.split() == [receiver]
