"""Secrets are read from files, and a file that holds none is an error that names its variable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from trmon.config.settings import SECRET_FILES, Settings, unknown_variables
from trmon.domain.errors import InvalidInput

SECRET = "s3cret-value"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*(field.upper() for field in Settings.model_fields), *(name.upper() for name in SECRET_FILES)):
        monkeypatch.delenv(f"TRMON_{name}", raising=False)


def give(monkeypatch: pytest.MonkeyPatch, path: Path, content: bytes, *, name: str = "TOKEN") -> None:
    path.write_bytes(content)
    monkeypatch.setenv(f"TRMON_{name}_FILE", str(path))


def test_every_secret_can_be_read_from_a_file() -> None:
    assert {name.removesuffix("_FILE") for name in SECRET_FILES} == {
        *("database_url", "redis_url", "webhook_url", "webhook_secret", "slack_url", "pagerduty_key"),
        *("alertmanager_url", "smtp_user", "smtp_password", "apprise_urls", "token", "grafana_token"),
    }
    assert not list(unknown_variables(f"TRMON_{name.upper()}" for name in SECRET_FILES))


@pytest.mark.parametrize("end", [b"", b"\r\n"])
def test_line_ends_after_the_secret_are_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: bytes) -> None:
    give(monkeypatch, tmp_path / "token", b" " + SECRET.encode() + end)
    token = Settings().token
    assert token is not None
    assert token.get_secret_value() == f" {SECRET}"
    assert SECRET not in repr(Settings())


def test_files_hold_database_urls_and_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, tmp_path / "url", b"postgresql+psycopg://trmon:pw@db/trmon\n", name="DATABASE_URL")
    give(monkeypatch, tmp_path / "apprise", b'{"teams": "json://a.example"}\n', name="APPRISE_URLS")
    monkeypatch.setenv("TRMON_APPRISE_UNCHECKED_ADDRESSES", "true")
    settings = Settings()
    assert settings.store_url == "postgresql+psycopg://trmon:pw@db/trmon"
    assert settings.apprise_urls == {"teams": SecretStr("json://a.example")}


def test_a_variable_without_a_value_counts_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, tmp_path / "token", SECRET.encode())
    monkeypatch.setenv("TRMON_TOKEN", "")
    monkeypatch.setenv("TRMON_SLACK_URL_FILE", "")
    assert Settings().receivers == ()
    assert Settings().token == SecretStr(SECRET)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"x" * 70_000, "is larger than 65536 bytes"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "token"
    give(monkeypatch, path, content or b"")
    if content is None:
        path.unlink()
    with pytest.raises(InvalidInput, match=f"TRMON_TOKEN_FILE: {path} {message}"):
        Settings()


def test_a_secret_and_its_file_are_not_both_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, tmp_path / "token", SECRET.encode())
    monkeypatch.setenv("TRMON_TOKEN", "other")
    with pytest.raises(InvalidInput, match="TRMON_TOKEN_FILE: is set, and so is TRMON_TOKEN"):
        Settings()


@pytest.mark.slow
def test_a_command_prints_the_variable_and_not_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, tmp_path / "url", SECRET.encode(), name="SLACK_URL")
    command = [sys.executable, "-m", "trmon", "serve", "--port", "0"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "TRMON_SLACK_URL: must be a URL" in refused.stderr
    assert SECRET not in refused.stderr
