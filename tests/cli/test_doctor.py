"""`trmon doctor`: one line a thing, what to do beneath it, and 1 where something is wrong."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.command import run_here
from tests.store.builders import append, report_intake
from trmon.store import Store
from trmon.store.database.sqlite import exclusive_use, record_beat


def examined(folder: Path, **variables: str) -> tuple[int, str]:
    done = run_here("doctor", "--data-dir", folder, **variables)
    return done.exit_code, done.output


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    status, said = examined(tmp_path)
    assert status == 1
    assert f"fail  database: {tmp_path / 'trmon.sqlite'} does not exist" in said
    assert "-> `trmon serve` creates it" in said


def test_a_sound_installation_passes(tmp_path: Path) -> None:
    assert run_here("token", "create", "root", "--scope", "admin", "--data-dir", tmp_path).exit_code == 0
    status, said = examined(tmp_path, public_url="https://trmon.example", slack_url="https://hooks.slack.example/x")
    assert (status, "fail" in said, "warn" in said) == (0, False, False), said
    assert "ok    receivers: slack" in said


def test_a_service_without_a_receiver_of_alerts_is_warned_of(tmp_path: Path) -> None:
    run_here("migrate", "--data-dir", tmp_path)
    status, said = examined(tmp_path)
    assert status == 0
    assert "warn  receivers: no receiver of alerts is configured: alerts are shown on the page only" in said
    assert "`trmon notify test` tests them" in said


def test_a_service_without_a_valid_admin_token_is_named_with_the_command_that_creates_one(tmp_path: Path) -> None:
    for command in (["create", "root", "--scope", "admin"], ["revoke", "root", "--force"]):
        assert run_here("token", *command, "--data-dir", tmp_path).exit_code == 0
    status, said = examined(tmp_path)
    assert status == 1
    assert "fail  access: no token of scope admin is valid" in said
    assert "-> create one: `trmon token create NAME --scope admin`" in said


def test_a_variable_that_nothing_reads_is_named(tmp_path: Path) -> None:
    run_here("migrate", "--data-dir", tmp_path)
    status, said = examined(tmp_path, slack_ulr="https://hooks.example/secret", mode="observe")
    assert (status, "secret" in said, said.count("is not a setting")) == (0, False, 1), said
    assert (
        "warn  settings: TRMON_SLACK_ULR is not a setting and has no effect\n      -> did you mean TRMON_SLACK_URL?"
        in said
    )


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("rules_file", "/nowhere/rules.yaml", "fail  rules:"),
        ("host", "0.0.0.0", "fail  access:"),
        ("database_url", "postgresql://me:secret@127.0.0.1:1/trmon", "fail  database:"),
    ],
)
def test_each_illness_is_named(tmp_path: Path, variable: str, value: str, expected: str) -> None:
    run_here("migrate", "--data-dir", tmp_path)
    status, said = examined(tmp_path, **{variable: value})
    assert (status, expected in said, "secret" in said) == (1, True, False), said


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
