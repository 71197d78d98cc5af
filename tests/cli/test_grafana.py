"""`trmon grafana push`, run as people run it, against a Grafana that answers as its API documents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.grafana.peer import Grafana


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    with Grafana() as peer:
        yield peer


def trmon(*arguments: str, block: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command; `block` is a package that cannot be imported, as if it were not installed."""
    start = f"import sys; sys.modules[{block!r}] = None; " if block else ""
    return subprocess.run(
        [sys.executable, "-c", f"{start}from trmon.cli import app; app()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **{f"TRMON_{name.upper()}": value for name, value in variables.items()}},
        timeout=100,
        check=False,
    )


def test_it_says_what_became_of_each_thing_and_where_it_is(grafana: Grafana) -> None:
    done = trmon("grafana", "push", "--url", grafana.url, grafana_token="glsa_secret")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["created"] * 5
    assert f"{grafana.url}/d/trmon-fleet" in done.stdout
    again = trmon("grafana", "push", grafana_url=grafana.url, grafana_token="glsa_secret")
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["unchanged"] * 5


def test_a_refusal_is_one_line(grafana: Grafana) -> None:
    done = trmon("grafana", "push", "--url", grafana.url, "--token", "wrong")
    assert done.returncode == 1
    assert done.stderr.startswith("trmon: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999", "http://"])
def test_what_is_no_address_is_one_line(url: str) -> None:
    done = trmon("grafana", "push", "--url", url, "--token", "glsa_secret")
    assert (done.returncode, done.stderr) == (
        1,
        f"trmon: --url: must be a URL such as http://host:port, not {url!r}\n",
    )


def test_a_token_is_needed() -> None:
    done = trmon("grafana", "push", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "TRMON_GRAFANA_TOKEN" in done.stderr


def test_without_the_extra_it_says_what_brings_it() -> None:
    done = trmon("grafana", "push", grafana_token="x", block="grafana_client")
    assert done.returncode == 1
    assert "pip install 'trmon[grafana]'" in done.stderr
