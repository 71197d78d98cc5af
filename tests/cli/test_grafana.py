"""`trmon grafana push`, against a Grafana that answers as its API documents."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fixtures.command import run_here
from tests.grafana.peer import Grafana


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    with Grafana() as peer:
        yield peer


def test_it_says_what_became_of_each_thing_and_where_it_is(grafana: Grafana) -> None:
    done = run_here("grafana", "push", "--url", grafana.url, grafana_token="glsa_secret")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["created"] * 5
    assert f"{grafana.url}/d/trmon-fleet" in done.stdout
    again = run_here("grafana", "push", grafana_url=grafana.url, grafana_token="glsa_secret")
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["unchanged"] * 5


def test_a_refusal_is_one_line(grafana: Grafana) -> None:
    done = run_here("grafana", "push", "--url", grafana.url, "--token", "wrong")
    assert done.exit_code == 1
    assert done.stderr.startswith("trmon: ")
    assert len(done.stderr.splitlines()) == 1


def test_without_the_extra_it_says_what_brings_it() -> None:
    code = "import sys; sys.modules['grafana_client'] = None; from trmon.cli import app; app()"
    command = [sys.executable, "-c", code, "grafana", "push", "--token", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'trmon[grafana]'" in done.stderr
