"""The shared report: what it shows, what it never shows, and that nothing in it is markup or runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import ILL, RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send
from tests.fixtures.waiting import eventually
from trmon.cli import app
from trmon.domain.identity import RunKey
from trmon_client.core import wire

PATH = f"/api/v1/runs/{ILL.key}/report.html"
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(scope="module")
def service(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with an ill run that has a hostile note and a secret in its configuration."""
    service = recorded.serve(recorded.running, tmp_path_factory.mktemp("report") / "data")
    with service.client() as client:
        note = {"text": HOSTILE, "step": 3}
        client.post(f"/api/v1/runs/{ILL.key}/notes", json=note).raise_for_status()
    yield service
    service.stop()


@pytest.fixture
def page(service: ThreadedService) -> str:
    """The report."""
    with service.client() as client:
        response = client.get(PATH)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="math-stale-8b.html"'
    return response.text


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_it_draws_the_course_and_says_in_words_what_each_chart_shows(page: str) -> None:
    assert page.count("<polyline") >= 8
    assert re.search(
        r'aria-label="Reward over steps 0 to 39: from [\d.]+ to [\d.]+, newest [\d.]+; began at step', page
    )


def test_nothing_in_it_runs_loads_or_is_markup(page: str) -> None:
    found = Tags(page)
    assert not {"script", "img", "link", "iframe", "button", "form", "a"} & set(found.tags)
    assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "href")]
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page
    assert len(page.encode()) < 300_000


def test_it_never_shows_the_configuration(page: str) -> None:
    assert "recording" not in page
    assert "Traceback" not in page


def test_a_run_without_a_step_has_a_report(service: ThreadedService) -> None:
    with service.client() as client:
        send(client, RunKey("math", "fresh"), wire.Start(**ORIGIN))
        found = eventually(
            lambda: client.get(PATH.replace(ILL.name, "fresh")), lambda response: response.status_code == 200
        )
    assert "no step yet" in found.text
    assert "<svg" not in found.text


def test_the_command_writes_the_file_and_keeps_one_that_exists(service: ThreadedService, tmp_path: Path) -> None:
    file = tmp_path / "ill.html"
    command = ["report", str(ILL.key), "-o", str(file), "--url", service.url]
    assert CliRunner().invoke(app, command).exit_code == 0
    written = file.read_text()
    assert "<h1>math/stale-8b</h1>" in written
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code != 0
    assert "exists; choose another file, or give --force" in refused.output
    assert file.read_text() == written
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0


def test_an_error_of_the_service_never_becomes_a_file(service: ThreadedService, tmp_path: Path) -> None:
    file = tmp_path / "none.html"
    refused = CliRunner().invoke(app, ["report", "math/none", "-o", str(file), "--url", service.url])
    assert refused.exit_code != 0
    assert not file.exists()
