"""The command: help, tokens, spools, receivers, rules, and what it says to wrong settings and databases."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from tests.client.server import Answer, Peer
from tests.fixtures.command import run_here, trmon
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.mail_server import MailServer
from tests.fixtures.messages import report
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.versions import next_version
from trmon.store.database.sqlite import exclusive_use
from trmon_client.core import wire
from trmon_client.core.wire.segments import HEADER, SUFFIX, encode_record


def spooled(directory: Path, *messages: wire.Message, tail: bytes = b"") -> Path:
    directory.mkdir(parents=True)
    segment = directory / f"00000000{SUFFIX}"
    segment.write_bytes(HEADER + b"".join(encode_record(wire.encode(message)) for message in messages) + tail)
    return segment


def test_help_has_a_short_option() -> None:
    for one, other in (("-h", "--help"), ("runs -h", "runs --help")):
        shown = run_here(*one.split())
        assert (shown.exit_code, shown.output) == (0, run_here(*other.split()).output)


def test_a_token_is_printed_once_listed_rotated_and_revoked(tmp_path: Path) -> None:
    def token(*given: str) -> Result:
        return run_here("token", *given, "--data-dir", tmp_path)

    made = token("create", "ci", "--scope", "admin", "--scope", "ingest").stdout.strip()
    assert made.startswith("trmon_")
    second = token("rotate", "ci", "--overlap", "24h").stdout.strip()
    assert second.startswith("trmon_")
    listed = token("list").stdout
    assert listed.count("(replaced)") == 1
    assert not {made, second, ""} & set(listed.split())
    for given, said in {
        ("create", "ci", "--scope", "read"): "'ci' already exists",
        ("rotate", "ci", "--overlap", "1 week"): "90s, 30m, 24h or 7d",
        ("revoke", "ci"): "--force",
    }.items():
        refused = token(*given)
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.stderr
    assert token("revoke", "ci", "--force").exit_code == 0


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = trmon("serve", "--port", port, "--data-dir", tmp_path / "other")
        assert (refused.returncode, f"port {port}" in refused.stderr, "--port" in refused.stderr) == (1, True, True)
        refused = trmon("worker", "--metrics-port", port)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use; --metrics-port chooses" in refused.stderr


def test_a_service_opens_no_database_that_another_holds_and_logs_what_nothing_reads(tmp_path: Path) -> None:
    with exclusive_use(f"sqlite:///{tmp_path}/trmon.sqlite"):
        refused = trmon("serve", "--port", 0, "--data-dir", tmp_path, grace_second="1", log_format="json")
    assert (refused.returncode, "a service uses" in refused.stderr) == (1, True)
    assert '"variable": "TRMON_GRACE_SECOND", "similar": "TRMON_GRACE_SECONDS"' in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["trmon.sqlite.lock"]


@pytest.mark.parametrize(
    "command",
    [("token", "list"), ("token", "revoke", "ci"), ("export", "math", "out"), ("backup", "out")],
    ids=lambda command: command[0],
)
def test_what_only_reads_makes_no_database(tmp_path: Path, command: tuple[str, ...]) -> None:
    asked = [tmp_path / "out" if part == "out" else part for part in command]
    refused = run_here(*asked, "--data-dir", tmp_path / "data")
    said = f"trmon: there is no database {tmp_path}/data/trmon.sqlite; create it with `trmon serve`"
    assert (refused.exit_code, refused.stderr.startswith(said)) == (1, True), refused.stderr
    assert not list(tmp_path.iterdir())


ASKED = """
import json, sys
from typer.testing import CliRunner
from trmon.cli import app
ended = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
print(json.dumps([[one.exit_code, one.output] for one in ended]))
"""


def test_an_older_schema_is_changed_by_migrate_alone_and_not_under_a_service(tmp_path: Path) -> None:
    later, data = next_version(tmp_path / "next"), ("--data-dir", str(tmp_path))

    def asked(*commands: tuple[str, ...]) -> list[tuple[int, str]]:
        """Run commands of the next version, for which this one's database is older; return how each ended."""
        given = json.dumps([(*command, *data) for command in commands])
        run = [sys.executable, "-c", ASKED, given]
        return json.loads(subprocess.run(run, env=later.environment, capture_output=True, check=True).stdout)

    open_migrated_store(tmp_path / "trmon.sqlite").close()
    listing, creating = ("token", "list"), ("token", "create", "ci", "--scope", "read")
    with exclusive_use(f"sqlite:///{tmp_path}/trmon.sqlite"):
        [created, *read] = asked(
            creating, listing, ("token", "revoke", "ci"), ("export", "math", str(tmp_path / "out"))
        )
    assert (created[0], "a service uses" in created[1]) == (1, True), created
    for status, said in read:
        assert (status, "has schema 0001" in said, "run `trmon migrate`" in said) == (1, True, True), said
    assert [status for status, _ in asked(("migrate",), listing)] == [0, 0]


def test_a_spool_is_sent_and_again_changes_nothing(shared_service: ThreadedService, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    steps = [report(project="math", run="grpo", step=step) for step in range(70)]
    spooled(spool / "math" / "grpo" / "one", *steps)
    spooled(spool / "math" / "grpo" / "two", report(project="math", run="grpo", step=70, rank=0))
    first = run_here("ingest", spool, "--url", shared_service.url)
    assert (first.exit_code, first.stdout) == (0, "71 stored\n"), first.stderr
    again = run_here("ingest", spool, url=shared_service.url)
    assert (again.exit_code, again.stdout) == (0, "71 duplicate\n")


def test_what_is_damaged_refused_or_unreadable_in_a_spool_is_counted_and_the_rest_is_sent(
    shared_service: ThreadedService, tmp_path: Path
) -> None:
    good, bad = report(project="math", run="other"), report(project="..", run="grpo")
    spooled(tmp_path / "spool" / "two", good, bad, tail=b"\x10\0\0")
    (tmp_path / "spool" / "one" / "00000001.seg").mkdir(parents=True)  # no one may read a folder
    sent = run_here("ingest", tmp_path / "spool", "--url", shared_service.url)
    assert (sent.exit_code, sent.stdout) == (1, "1 damaged, 1 invalid, 1 stored, 1 unreadable\n")
    assert "00000001.seg: Is a directory" in sent.stderr


def test_a_spool_needs_a_service_and_segments(tmp_path: Path) -> None:
    empty = run_here("ingest", tmp_path, "--url", "http://127.0.0.1:9")
    assert (empty.exit_code, "no segments" in empty.stderr) == (1, True)
    segment = spooled(tmp_path / "spool", report(project="math", run="grpo"))
    for wrong, said in {segment: "is a file; give its folder", tmp_path / "nowhere": "is not there"}.items():
        refused = run_here("ingest", wrong)
        assert (refused.exit_code, f"DIR: {wrong} {said}" in refused.stderr) == (1, True), refused.stderr
    away = run_here("ingest", tmp_path / "spool", "--url", "http://127.0.0.1:9")
    assert away.exit_code == 1
    assert "no service answers" in away.stderr


def test_a_test_alert_goes_through_every_receiver_and_its_outcome_is_printed() -> None:
    with WebhookServer() as fine, WebhookServer(statuses=[500]) as failing:
        tried = run_here(
            *("notify", "test"),
            webhook_url=fine.url,
            slack_url=failing.url,
            pagerduty_key="R0UT1NG",
            pagerduty_url=fine.url,
            alertmanager_url=fine.url,
            webhook_allow_hosts="127.0.0.1",
        )
        paths = [posted.path for posted in fine.posted]
    assert tried.exit_code == 1
    assert tried.stdout.splitlines() == [
        *("webhook: firing delivered", "webhook: resolved delivered"),
        *("slack: firing retry (answered 500)", "slack: resolved retry (answered 500)"),
        *("pagerduty: firing delivered", "pagerduty: resolved delivered"),
        *("alertmanager: firing delivered", "alertmanager: resolved delivered"),
    ]
    assert paths == [*["/hook"] * 4, *["/hook/api/v2/alerts"] * 2]


def test_a_test_alert_by_mail_and_through_apprise_says_what_arrived_and_why_not() -> None:
    mail = {"email_from": "trmon@example.org", "email_to": "ana@example.org,bo@example.org"}
    with MailServer(security="none", refusals={"bo@example.org": "550 no such user"}) as server, WebhookServer() as ops:
        tried = run_here(
            *("notify", "test"),
            **mail,
            smtp_host="127.0.0.1",
            smtp_port=str(server.port),
            smtp_security="none",
            webhook_allow_hosts="127.0.0.1",
            apprise_unchecked_addresses="true",
            apprise_urls=f'{{"ops": "json://127.0.0.1:{ops.port}/s3cr3t", "away": "json://127.0.0.1:9/s3cr3t"}}',
        )
    partial = "delivered (1 of 2 addresses refused: bo@example.org: 550 no such user)"
    assert tried.stdout.splitlines() == [
        *(f"email: firing {partial}", f"email: resolved {partial}"),
        *("ops: firing delivered", "ops: resolved delivered"),
        *("away: firing retry (no connection)", "away: resolved retry (no connection)"),
    ]
    assert (tried.exit_code, tried.stderr) == (1, "")
    assert [got.recipients for got in server.received] == [["ana@example.org"]] * 2
    assert len(ops.posted) == 2


RULE = "- {name: mine, severity: warn, summary: s, immune_steps: 0, when: {signal: kl_k1, above: 1}}"
RULE_TEST = """
rules: rules.yaml
tests:
  - name: a step beyond is told
    series: {mismatch_kl_k1: "0x4 2 0"}
    alerts: [{rule: mine, state: firing, step: 5}, {rule: mine, state: resolved, step: 6}]
"""


def test_rules_are_tested_by_series(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULE)
    file = tmp_path / "tests.yaml"
    file.write_text(RULE_TEST)
    passed = run_here("rules", "test", file)
    assert (passed.exit_code, passed.stdout) == (0, "ok      a step beyond is told\n")
    file.write_text(RULE_TEST.replace("step: 6", "step: 7"))
    failed = run_here("rules", "test", file)
    assert failed.exit_code == 1
    assert "expected: mine firing at 5, mine resolved at 7\n  got:      mine firing at 5, mine resolved at 6" in (
        failed.stdout
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:secret@127.0.0.1:port/x", "expected sqlite:///"),
        ("postgresql://me:secret@127.0.0.1:1/x?foo=bar", 'invalid connection option "foo"; correct TRMON_DATABASE_URL'),
    ],
)
def test_a_database_url_that_is_none_is_one_line_of_doctor(url: str, expected: str) -> None:
    refused = run_here("doctor", database_url=url)
    assert (refused.exit_code, expected in refused.stdout) == (1, True), refused.output
    assert "secret" not in refused.output


def test_another_program_at_the_address_of_a_spool_is_said_to_be_one(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", report(project="math", run="grpo"))
    with Peer(otherwise=Answer(200, {"Content-Type": "application/json"}, b"{}")) as stranger:
        refused = run_here("ingest", tmp_path / "spool", "--url", stranger.url)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    assert "does not answer like" in refused.stderr


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", "from trmon.cli import app; app()", "migrate", "--data-dir", str(tmp_path)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (1, "trmon: [Errno 28] No space left on device\n")
