"""Pages say what the code does and name what is elsewhere: decisions, paths, tests, dependencies and versions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import tomllib

from tests.docs.code_blocks import functions_in
from tests.domain.alerts.alert_builders import delivery_of
from tests.domain.memory_log import MemoryLog
from tests.fixtures.alerting import crash
from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import ALERT, notification
from trmon.cli.commands import COMMANDS, load_command
from trmon.config.secret_files import SUFFIX
from trmon.domain.alerts.delivery import DeliveryContext, DeliveryState
from trmon.domain.alerts.muting import MuteReason, enrich_notification
from trmon.domain.alerts.notification import NotifiedCause
from trmon.domain.findings.catalogue import USUAL_HOLD
from trmon.domain.findings.judge import CLEAR_ROWS
from trmon.domain.findings.verdict import ENOUGH_ROWS, LEADS_AFTER_ROWS, NEAR_ROWS, Word
from trmon.domain.rules.rule import IMMUNE_ROWS
from trmon.notify.receiver import HttpPost
from trmon.notify.webhook import Webhook, webhook_message

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    shown = {
        page.parent / source for page in pages for source in re.findall(r'<img[^>]* src="([^":]+)"', page.read_text())
    }
    assert len(shown) >= 8
    assert not [picture for picture in shown if not picture.is_file()]
    ranks = {
        entry["location"]: entry.get("boost")
        for entry in json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    }
    assert ranks["decisions/0016-order-on-postgresql/"] < 1 == (ranks["alerts/"] or 1)


def test_every_decision_has_a_line_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    missing = [page.name for page in sorted(folder.glob("0*.md")) if f"]({page.name}): " not in index]
    assert not missing


def test_every_path_on_the_architecture_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {path.rstrip("/") for path in re.findall(r"`([\w.-]+/[\w/.-]*)`", page)}
    bases = ("", "trmon", "client/trmon_client")
    missing = {
        path
        for path in named
        if not any((ROOT / base / f"{path}{suffix}").exists() for base in bases for suffix in ("", ".py"))
    }
    assert named
    assert not missing


THREATS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / "docs" / "security.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| threat |", "| --- |"))
]


def test_every_threat_has_a_defence_and_tests_that_exist() -> None:
    assert len(THREATS) > 20
    for threat, defence, tests in THREATS:
        assert threat
        assert defence, threat
        named = re.findall(r"`([^`]+)`", tests)
        assert named, threat
        missing = [name for name in named if name.partition("::")[2] not in functions_in(name.partition("::")[0])]
        assert missing == [], threat


REASONED = [
    name.strip().lower()
    for line in (ROOT / "docs/dependencies.md").read_text().splitlines()
    if line.startswith("| ")
    for name in re.sub(r"\(.*?\)", "", line.split("|")[1]).split(",")
]
"""The names in the first column of the table, without licences."""


def required(path: str) -> set[str]:
    """Return the names of what a package requires, with all of its extras."""
    project = tomllib.loads((ROOT / path).read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    return {
        re.split(r"[^\w-]", wanted)[0]
        for wanted in (*project["dependencies"], *(one for extra in extras for one in extra))
    }


def test_every_dependency_has_one_reason() -> None:
    names = (required("pyproject.toml") | required("client/pyproject.toml")) - {"trmon-client"}
    assert {name: REASONED.count(name) for name in names if REASONED.count(name) != 1} == {}


SAID = {
    "trl": [("trl.md", "{trl} (transformers {transformers})")],
    "trl-oldest": [("trl.md", "{trl} (transformers {transformers})")],
    "examples": [
        ("scalars.md", "transformers {transformers} and Lightning {lightning}, "),
        ("scalars.md", "wandb {wandb} and trackio {trackio}, "),
    ],
    **{
        name: [(f"{name}.md", f"{{{name}}}"), ("index.md", f"{{{name}}}")]
        for name in ("skyrl", "openrlhf", "areal", "ms-swift")
    },
}
"""Of each file of requirements, what which page says of its versions."""


@pytest.mark.parametrize("pinned", SAID)
def test_the_pages_name_the_versions_that_are_run(pinned: str) -> None:
    requirements = (ROOT / f"requirements/{pinned}.txt").read_text()
    versions = dict(re.findall(r"^([\w-]+)==([\d.]+)", requirements, re.MULTILINE))
    if "transformers" in versions:
        versions["transformers"] = ".".join(versions["transformers"].split(".")[:2])
    for page, said in SAID[pinned]:
        assert said.format_map(versions) in (ROOT / "docs/integrations" / page).read_text()


DIAGNOSIS = (ROOT / "docs" / "diagnosis.md").read_text()
DIAGNOSIS_WORDS = " ".join(DIAGNOSIS.split())


def test_the_example_runs_and_finds_what_it_says() -> None:
    block = textwrap.dedent(DIAGNOSIS.split("## In Python\n\n")[1].split("\n\nThe state")[0])
    statements, _, last = block.rpartition("\n")
    names: dict[str, Any] = {}
    exec(statements, names)
    expression, _, said = last.partition("# ")
    assert eval(expression, names) == said


def test_every_word_of_a_verdict_is_explained() -> None:
    explained = {line.split(" | ")[0].removeprefix("| ") for line in DIAGNOSIS.splitlines() if line.startswith("| ")}
    for word in Word:
        if word is not Word.FINDING:
            assert any(words.startswith(word.value) for words in explained), word


def test_the_numbers_of_the_page_are_those_of_the_judge() -> None:
    assert f"*{USUAL_HOLD}*" in DIAGNOSIS_WORDS
    assert f"ends after {CLEAR_ROWS} rows" in DIAGNOSIS_WORDS
    assert f"within {NEAR_ROWS} rows of each other" in DIAGNOSIS_WORDS
    assert f"has stood for {LEADS_AFTER_ROWS} rows" in DIAGNOSIS_WORDS
    assert f"({ENOUGH_ROWS // 3 + 1} of {ENOUGH_ROWS})" in DIAGNOSIS_WORDS
    assert f"In the first {IMMUNE_ROWS} steps" in DIAGNOSIS_WORDS


def test_every_section_of_the_findings_that_the_code_cites_is_on_the_page() -> None:
    texts = [path.read_text() for path in (ROOT / "trmon").rglob("*.py")]
    cited = {number for text in texts for number in re.findall(r"Source: findings, section (\d)", text)}
    assert cited
    assert cited <= set(re.findall(r"^### (\d)\. ", DIAGNOSIS, re.MULTILINE))


ALERTS = ROOT / "docs" / "alerts.md"
SENT_AT = 1_800_000_000.0
CAUSE = NotifiedCause(
    rule="stale_rollouts", title="stale rollouts", last_good_step=19, remedy="", options={}, runbook_url=None
)


def test_the_body_has_the_fields_that_the_page_shows() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", ALERTS.read_text(), re.DOTALL)
    context = DeliveryContext(run=MemoryLog().stored_run, alerts=(ALERT,), tried={})
    notification = enrich_notification(delivery_of(ALERT), context, now=SENT_AT)
    alert = msgspec.structs.replace(notification.alert, labels={})
    incident = msgspec.structs.replace(notification, alert=alert, cause=CAUSE)
    message = webhook_message([incident])
    assert shape(json.loads(shown)) == shape(json.loads(msgspec.json.encode(message)))


def shape(value: Any) -> Any:
    """Return a document with the names of its fields and without their values."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


def test_the_snippet_accepts_only_the_request_that_was_sent() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", ALERTS.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(snippet, str(ALERTS), "exec"), found)
    with WebhookServer() as server:
        webhook = Webhook(HttpPost(server.url, allow_hosts=frozenset({"127.0.0.1"})), secret="swordfish")
        webhook.deliver([notification()], now=SENT_AT)
        webhook.close()
        [posted] = server.posted
    for case, secret, added, later_seconds, is_accepted in (
        ("what was sent", "swordfish", b"", 10.0, True),
        ("another secret", "guess", b"", 10.0, False),
        ("another body", "swordfish", b" ", 10.0, False),
        ("sent again much later", "swordfish", b"", 301.0, False),
    ):
        verified = found["is_from_trmon"](secret, posted.headers, posted.body + added, now=SENT_AT + later_seconds)
        assert verified is is_accepted, case


ASSISTANTS = (ROOT / "docs" / "assistants.md").read_text("utf-8")


def test_the_configuration_starts_the_command_with_its_options() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", ASSISTANTS, re.DOTALL)
    entry = json.loads(block)["mcpServers"]["trmon"]
    command, *arguments = entry["args"]
    assert (entry["command"], command in COMMANDS) == ("trmon", True)
    known = {option for parameter in load_command(command).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known
    assert set(entry["env"]) <= {"TRMON_TOKEN", f"TRMON_TOKEN{SUFFIX}"}


MISSING_ALERTS = (ROOT / "docs" / "missing-alerts.md").read_text()
REQUESTS = re.findall(r'curl -s (?:-X (\w+) )?"\$TRMON(/[^"]+)"', MISSING_ALERTS)


def test_every_request_on_the_page_is_answered(client: httpx.Client) -> None:
    crash(client)
    silence = {"seconds": 60, "matchers": [{"label": "run", "value": "other"}]}
    client.post("/api/v1/silences", json=silence).raise_for_status()
    answers = {path: client.request(method or "GET", path).status_code for method, path in REQUESTS}
    assert set(answers.values()) == {200, 204}, answers
    assert len(answers) == 8


def test_every_state_and_reason_of_a_delivery_is_named() -> None:
    assert [state.value for state in DeliveryState if f"`{state.value}`" not in MISSING_ALERTS] == []
    assert [reason.value for reason in MuteReason if f"| {reason.value} |" not in MISSING_ALERTS] == []
