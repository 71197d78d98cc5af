"""`trmon whatif` over a running service."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.fixtures.command import run_here
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train

STRICT = '{"name": "strict", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}'


@pytest.fixture(scope="module")
def service(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """A service that has seen five steps of a run."""
    train(shared, steps=range(5))
    return shared_service


def test_policies_stand_in_one_table(service: ThreadedService) -> None:
    asked = ("--policy", STRICT, "--policy", "trm_max(delta=100)", "--from", 1, "--to", 3)
    shown = run_here("whatif", "math/grpo", *asked, url=service.url)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("steps 1 to 3, 3 of them\n")
    assert "strict rejects by: mean_k3 12" in shown.stdout
    rows = [line.split()[:3] for line in shown.stdout.splitlines() if "%" in line]
    assert rows == [["strict", "12", "100.00%"], ["trm_max(delta=100)", "12", "0.00%"]]


def test_a_soft_policy_shows_its_weights(service: ThreadedService) -> None:
    shown = run_here("whatif", "math/grpo", "--policy", "trm_avg(delta=1e-12,soft_tau=1e30)", url=service.url)
    assert shown.exit_code == 0, shown.stderr
    said = "trm_avg(delta=1e-12, soft_tau=1e+30) is soft: mean weight 100.00%, effective share 100.00%"
    assert said in " ".join(shown.stdout.split())


def test_what_the_api_answers_is_printed_on_request(service: ThreadedService) -> None:
    asked = ("--policy", "geo_mask", "--policy", "opsm", "--json", "--max-steps", 2)
    shown = run_here("whatif", "math/grpo", *asked, "--url", service.url)
    answers = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(answer["policy"], answer["range"]["first_step"]) for answer in answers] == [("geo_mask", 3), ("opsm", 3)]
    assert [answer["total"]["n_sequences"] for answer in answers] == [8, 0]
    assert "advantages" in next(iter(answers[1]["undecided"]))
