"""The command: help, imports, tokens, spools, receivers, rules, the doctor, and wrong settings and databases."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.client.server import Answer, Peer
from tests.fixtures.command import run_here, trmon
from tests.fixtures.databases import open_migrated_store, prepare_database
from tests.fixtures.mail_server import MailServer
from tests.fixtures.messages import report
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.versions import next_version
from tests.store.builders import append, report_intake
from trmon.cli.commands import COMMANDS, load_command
from trmon.store import Store
from trmon.store.database.sqlite import exclusive_use, record_beat
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
        serving = ("serve", "--port", port, "--data-dir", tmp_path)
        [(served, of_service, _), (worked, of_worker, _)] = run_each(serving, ("worker", "--metrics-port", port))
    assert (served, f"port {port}" in of_service, "--port" in of_service) == (1, True, True)
    said = f"trmon: cannot listen on 127.0.0.1 port {port}: Address already in use; --metrics-port chooses"
    assert (worked, of_worker.startswith(said)) == (1, True), of_worker


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


RUN_EACH = """
import json, sys
from typer.testing import CliRunner
from trmon.cli import app
for command in json.loads(sys.argv[1]):
    ended = CliRunner().invoke(app, command)
    print(json.dumps([ended.exit_code, ended.output, [*sys.modules]]))
"""
Ended = tuple[int, str, list[str]]


def run_each(*commands: Iterable[object], prefix: Iterable[str] = (), **options: Any) -> list[Ended]:
    """Run commands in one separate process; return how each ended, what it said and what was imported by then."""
    given = json.dumps([[*map(str, command)] for command in commands])
    run = [*prefix, sys.executable, "-c", RUN_EACH, given]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200, check=True, **options)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_older_schema_is_changed_by_migrate_alone_and_not_under_a_service(tmp_path: Path) -> None:
    """The next version runs the commands, for which this one's database is older."""
    later, data = next_version(tmp_path / "next"), ("--data-dir", tmp_path)
    open_migrated_store(tmp_path / "trmon.sqlite").close()
    creating = ("token", "create", "ci", "--scope", "read", *data)
    reading = [("token", "list"), ("token", "revoke", "ci"), ("export", "math", tmp_path / "out")]
    asked = [(*command, *data) for command in reading]
    with exclusive_use(f"sqlite:///{tmp_path}/trmon.sqlite"):
        [created, *read] = run_each(creating, *asked, env=later.environment)
    assert (created[0], "a service uses" in created[1]) == (1, True), created
    for status, said, _ in read:
        assert (status, "has schema 0001" in said, "run `trmon migrate`" in said) == (1, True, True), said
    assert [status for status, *_ in run_each(("migrate", *data), asked[0], env=later.environment)] == [0, 0]


def test_a_spool_is_sent_and_again_changes_nothing(shared_service: ThreadedService, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    steps = [report(project="math", run="grpo", step=step) for step in range(70)]
    spooled(spool / "math" / "grpo" / "one", *steps)
    spooled(spool / "math" / "grpo" / "two", report(project="math", run="grpo", step=70, rank=0))
    first = run_here("ingest", spool, "--url", shared_service.url)
    assert (first.exit_code, first.stdout) == (0, "71 stored\n"), first.stderr
    again = run_here("ingest", spool, url=shared_service.url)
    assert (again.exit_code, again.stdout) == (0, "71 duplicate\n")


def test_what_cannot_be_sent_of_a_spool_is_counted(shared_service: ThreadedService, tmp_path: Path) -> None:
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
    assert (away.exit_code, "no service answers" in away.stderr) == (1, True)
    with Peer(otherwise=Answer(200, {"Content-Type": "application/json"}, b"{}")) as stranger:
        refused = run_here("ingest", tmp_path / "spool", "--url", stranger.url)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    assert "does not answer like" in refused.stderr


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


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", "from trmon.cli import app; app()", "migrate", "--data-dir", str(tmp_path)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (1, "trmon: [Errno 28] No space left on device\n")


DATABASE_AND_SERVER = {
    "sqlalchemy",
    "psycopg",
    "redis",
    "fastapi",
    "uvicorn",
    "prometheus_client",
    "torch",
    "trmon.store",
}
HTTP = {"httpx", "urllib3"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_summary_is_the_first_line_of_the_help(name: str) -> None:
    text = load_command(name).help or ""
    assert COMMANDS[name].summary == " ".join(text.partition("\n\n")[0].split())


NEEDED_LATER = (
    (("--help", "top --help"), DATABASE_AND_SERVER | HTTP | {"pydantic_settings", "numpy"}),
    (("--version",), DATABASE_AND_SERVER | HTTP | {"pydantic_settings"}),
    (
        ("show --help", "diagnose --example", "whatif --help", "ingest --help", "rules check --help"),
        DATABASE_AND_SERVER | HTTP,
    ),
    (("mcp --help",), DATABASE_AND_SERVER | HTTP | {"mcp", "starlette"}),
    (("preflight --help", "replay --help"), DATABASE_AND_SERVER | {"urllib3"}),
    (("notify test --help",), DATABASE_AND_SERVER - {"prometheus_client"} | {"urllib3"}),
    (("migrate --help",), set()),
)
"""Commands in the order in which one process runs them, each with what it and those before it must not import."""


def test_commands_import_only_what_they_need_and_those_of_the_database_the_store() -> None:
    commands = [(command, unneeded) for some, unneeded in NEEDED_LATER for command in some]
    ended = run_each(*(command.split() for command, _ in commands))
    for (command, unneeded), (*_, modules) in zip(commands, ended, strict=True):
        assert unneeded.isdisjoint(modules), command
    assert {"sqlalchemy", "trmon.store"} <= {*ended[-1][2]}


def examined(folder: Path, **variables: str) -> tuple[int, str]:
    done = run_here("doctor", "--data-dir", folder, **variables)
    return done.exit_code, done.output


def test_the_doctor_passes_a_sound_installation(tmp_path: Path) -> None:
    assert run_here("token", "create", "root", "--scope", "admin", "--data-dir", tmp_path).exit_code == 0
    status, said = examined(tmp_path, public_url="https://trmon.example", slack_url="https://hooks.slack.example/x")
    assert (status, "fail" in said, "warn" in said) == (0, False, False), said
    assert "ok    receivers: slack" in said


POSTGRES = "postgresql://me:secret@127.0.0.1"


@pytest.mark.parametrize(
    ("before", "variables", "status", "lines"),
    [
        ([], {}, 1, ["fail  database: FOLDER/trmon.sqlite does not exist", "-> `trmon serve` creates it"]),
        (
            ["migrate"],
            {},
            0,
            [
                "warn  receivers: no receiver of alerts is configured: alerts are shown on the page only",
                "`trmon notify test` tests them",
            ],
        ),
        (
            ["token create root --scope admin", "token revoke root --force"],
            {},
            1,
            [
                "fail  access: no token of scope admin is valid",
                "-> create one: `trmon token create NAME --scope admin`",
            ],
        ),
        (
            ["migrate"],
            {"slack_ulr": "https://hooks.example/secret", "mode": "observe"},
            0,
            ["warn  settings: TRMON_SLACK_ULR is not a setting and has no effect", "-> did you mean TRMON_SLACK_URL?"],
        ),
        (["migrate"], {"rules_file": "/nowhere/rules.yaml"}, 1, ["fail  rules:"]),
        (["migrate"], {"host": "0.0.0.0"}, 1, ["fail  access:"]),
        (["migrate"], {"database_url": f"{POSTGRES}:1/trmon"}, 1, ["fail  database:"]),
        ([], {"database_url": f"{POSTGRES}:port/x"}, 1, ["expected sqlite:///"]),
    ],
    ids=["no database", "no receiver", "no token", "no setting", "rules", "exposed", "no server", "no address"],
)
def test_the_doctor_names_what_is_wrong_and_what_to_do(
    tmp_path: Path, before: list[str], variables: dict[str, str], status: int, lines: list[str]
) -> None:
    for command in before:
        assert run_here(*command.split(), "--data-dir", tmp_path).exit_code == 0
    found, said = examined(tmp_path, **variables)
    assert (found, "secret" in said) == (status, False), said
    assert [line for line in lines if line.replace("FOLDER", str(tmp_path)) not in said] == [], said
    assert said.count("is not a setting") == ("slack_ulr" in variables)


def test_a_hung_worker_and_a_report_that_waits_are_named(tmp_path: Path) -> None:
    run_here("migrate", "--data-dir", tmp_path)
    url, file = f"sqlite:///{tmp_path / 'trmon.sqlite'}", tmp_path / "trmon.sqlite"
    assert "ok    judging: no service uses this file; no report waits" in examined(tmp_path)[1]
    with exclusive_use(url):
        assert "ok    judging: a worker made progress " in examined(tmp_path)[1]
        with closing(Store.open(url)) as store:
            append(store, report_intake(), now=time.time() - 1000.0)
        assert "warn  judging: the oldest report waits for 100" in examined(tmp_path)[1]
        record_beat(file, at=time.time() - 60.0)
        status, said = examined(tmp_path)
        assert (status, "fail  judging: no worker beats for 60 s; the oldest report waits" in said) == (1, True), said


@pytest.mark.server("postgres")
def test_a_fleet_without_workers_is_named(tmp_path: Path, postgres_url: str) -> None:
    assert "fail  judging: there is no worker" in examined(tmp_path, database_url=postgres_url)[1]
    with closing(Store.open(postgres_url)) as store:
        leases = store.leases("one", lease_seconds=10.0)
        leases.renew()
        assert "ok    judging: a worker made progress " in examined(tmp_path, database_url=postgres_url)[1]


WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Takes root's right to write where permissions forbid it."""
SERVE = ("serve", "--port", "0")


@pytest.mark.server("setpriv")
@pytest.mark.parametrize("commands", [(SERVE,), (SERVE, ("doctor",), ("token", "list"))], ids=["empty", "migrated"])
def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path, commands: tuple[tuple[str, ...], ...]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "trmon.sqlite"
    if len(commands) > 1:
        prepare_database(f"sqlite:///{file}")
        file.chmod(0o444)
    folder.chmod(0o555)
    before = sorted(path.name for path in folder.iterdir())
    asked = [(*command, "--data-dir", folder) for command in commands]
    for status, said, _ in run_each(*asked, prefix=() if os.geteuid() else WITHOUT_PRIVILEGE):
        assert (status, str(file) in said, "writable for this user" in said) == (1, True, True), said
    assert sorted(path.name for path in folder.iterdir()) == before
