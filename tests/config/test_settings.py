"""Settings are read from TRMON_* variables and files of secrets, validated, immutable and documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from tests.fixtures.command import trmon
from trmon.config.settings import CLIENT_SETTINGS, SECRET_FILES, Settings, unknown_variables
from trmon.domain.errors import InvalidInput
from trmon_client.config.service_address import variable_name
from trmon_client.config.settings import resolve_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*Settings.model_fields, *SECRET_FILES):
        monkeypatch.delenv(f"TRMON_{name.upper()}", raising=False)


def test_the_defaults_are_those_of_the_design() -> None:
    settings = Settings()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8642, Path("trmon-data"))
    assert settings.store_url == "sqlite:///trmon-data/trmon.sqlite"
    assert (settings.grace_seconds, settings.stall_floor_seconds, settings.stall_factor) == (60.0, 120.0, 3.0)
    assert (settings.metrics_max_runs, settings.metrics_max_scalars) == (500, 32)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_PORT", "9000")
    monkeypatch.setenv("TRMON_ALLOW_HOSTS", "a.example, b.example")
    settings = Settings()
    assert settings.port == 9000
    assert settings.allow_hosts == ("a.example", "b.example")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"TRMON_{name.upper()}", "")
    settings = Settings()
    assert settings == Settings.model_construct()
    assert settings.receivers == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("MAX_BODY_BYTES", "1"),
        ("STALL_FACTOR", "1"),
        ("LOG_FORMAT", "xml"),
        ("METRICS_SIGNALS", "wisdom"),
        ("WEBHOOK_URL", "hooks.example"),
        ("WEBHOOK_URL", "https://"),
        ("SLACK_URL", "https://[::1"),
        ("ALERTMANAGER_URL", "http://alertmanager:99999"),
    ],
)
def test_an_invalid_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"TRMON_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(
    ("routes", "slack_url", "message"),
    [
        ('{"ana": ["slack"]}', "https://slack.example/x", None),
        ('{"ana": []}', "", None),
        ('{"ana": ["slack", "webhook"]}', "", "slack needs TRMON_SLACK_URL, webhook needs"),
        ('{"ana": ["pager"]}', "", "unknown receivers pager; known ones are webhook, slack, pager"),
    ],
)
def test_a_route_names_configured_receivers_only(
    monkeypatch: pytest.MonkeyPatch, routes: str, slack_url: str, message: str | None
) -> None:
    monkeypatch.setenv("TRMON_ROUTES", routes)
    if slack_url:
        monkeypatch.setenv("TRMON_SLACK_URL", slack_url)
    if message is None:
        assert set(Settings().routes) == {"ana"}
        return
    with pytest.raises(ValidationError, match=message) as refused:
        Settings()
    assert refused.value.errors()[0]["loc"] == ("routes",)


MAIL = {"SMTP_HOST": "mail.example", "EMAIL_FROM": "trmon@example.org", "EMAIL_TO": "ana@example.org, bo@example.org"}
UNCHECKED = {"APPRISE_UNCHECKED_ADDRESSES": "true"}


def test_mail_and_apprise_receivers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {"APPRISE_URLS": '{"teams": "json://a.example"}', "ROUTES": '{"ana": ["teams", "email"]}'}
    for name, value in (MAIL | UNCHECKED | urls).items():
        monkeypatch.setenv(f"TRMON_{name}", value)
    settings = Settings()
    assert settings.receivers == ("email", "teams")
    assert settings.email_to == ("ana@example.org", "bo@example.org")


@pytest.mark.parametrize(
    ("variables", "name", "message"),
    [
        ({"SMTP_HOST": "mail.example", "EMAIL_TO": "a@b.example"}, "email_from", "is needed with TRMON_SMTP_HOST"),
        ({"SMTP_HOST": "mail.example", "EMAIL_FROM": "a@b.example"}, "email_to", "is needed with TRMON_SMTP_HOST"),
        ({"EMAIL_TO": "a@b.example"}, "email_to", "needs TRMON_SMTP_HOST"),
        (MAIL | {"SMTP_HOST": "smtp://mail.example:25"}, "smtp_host", "must be a host name"),
        (MAIL | {"EMAIL_TO": "ana"}, "email_to", "'ana' is not an e-mail address"),
        (MAIL | {"EMAIL_FROM": "Ana <ana@example.org>"}, "email_from", "is not an e-mail address"),
        (MAIL | {"EMAIL_FROM": "a@b.example\r\nBcc: c@d.example"}, "email_from", "is not an e-mail address"),
        (MAIL | {"SMTP_SECURITY": "none"}, "smtp_security", "add mail.example to TRMON_WEBHOOK_ALLOW_HOSTS"),
        (MAIL | {"SMTP_PASSWORD": "x"}, "smtp_password", "needs TRMON_SMTP_USER"),
        (MAIL | {"SMTP_USER": "x"}, "smtp_password", "is needed with TRMON_SMTP_USER"),
        (
            MAIL
            | {"SMTP_USER": "x", "SMTP_PASSWORD": "x", "SMTP_SECURITY": "none"}
            | {"WEBHOOK_ALLOW_HOSTS": "mail.example"},
            "smtp_password",
            "is not sent unencrypted",
        ),
        ({"APPRISE_URLS": '{"teams": "json://a"}'}, "apprise_urls", "TRMON_APPRISE_UNCHECKED_ADDRESSES=true"),
        (UNCHECKED | {"APPRISE_URLS": '{"slack": "json://a"}'}, "apprise_urls", "slack is the name of a built-in"),
        (UNCHECKED | {"APPRISE_URLS": '{"My team": "json://a"}'}, "apprise_urls", "'My team' is not a receiver name"),
    ],
)
def test_a_mail_or_apprise_setting_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str, message: str
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(f"TRMON_{variable}", value)
    with pytest.raises(ValidationError, match=message) as refused:
        Settings()
    assert [error["loc"] for error in refused.value.errors()] == [(name,)]


def test_secrets_are_not_shown() -> None:
    settings = Settings(webhook_url="https://hooks.example/T0/secret", webhook_secret="swordfish", token="trmon_x")  # type: ignore[arg-type]
    shown = f"{settings!r} {settings} {settings.model_dump_json()}"
    assert not [secret for secret in ("T0/secret", "swordfish", "trmon_x") if secret in shown]


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("x.local", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, *, loopback: bool) -> None:
    assert Settings(host=host).is_exposed is not loopback


@pytest.mark.parametrize(
    ("host", "allowed", "answered"),
    [
        ("127.0.0.1", (), {"localhost", "127.0.0.1", "[::1]"}),
        ("127.0.0.1", ("a.example",), {"localhost", "127.0.0.1", "[::1]", "a.example"}),
        ("Trainer.Example", ("A.Example",), {"localhost", "127.0.0.1", "[::1]", "trainer.example", "a.example"}),
        ("0.0.0.0", (), None),
        ("0.0.0.0", ("a.example",), {"localhost", "127.0.0.1", "[::1]", "0.0.0.0", "a.example"}),
    ],
)
def test_accepted_host_headers(host: str, allowed: tuple[str, ...], answered: set[str] | None) -> None:
    assert Settings(host=host, allow_hosts=allowed).answered_hosts == answered


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("TRMON_SLACK_ULR", "TRMON_SLACK_URL"),
        ("TRMON_DATABASEURL", "TRMON_DATABASE_URL"),
        ("TRMON_GRACE_SECOND", "TRMON_GRACE_SECONDS"),
        ("TRMON_SPOOLDIR", "TRMON_SPOOL_DIR"),
        ("TRMON_TYPO", None),
        ("TRMON_", None),
    ],
)
def test_unknown_variables_are_reported_with_the_most_similar_one(name: str, similar: str | None) -> None:
    assert list(unknown_variables(["PATH", "TRMON_PORT", name, "MYTRMON_X"])) == [(name, similar)]


def test_variables_that_kubernetes_sets_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "TRMON_PORT": "tcp://10.0.0.7:8642",
        "TRMON_PORT_8642_TCP": "tcp://10.0.0.7:8642",
        "TRMON_PORT_8642_TCP_ADDR": "10.0.0.7",
        "TRMON_SERVICE_HOST": "10.0.0.7",
        "TRMON_SERVICE_PORT": "8642",
        "TRMON_SERVICE_PORT_HTTP": "8642",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Settings().port == Settings.model_fields["port"].default
    assert not list(unknown_variables(variables))


def test_every_setting_of_service_and_client_is_known() -> None:
    assert not list(unknown_variables(f"TRMON_{name.upper()}" for name in (*Settings.model_fields, *CLIENT_SETTINGS)))


def test_the_listed_client_settings_are_those_that_the_client_reads() -> None:
    read: set[str] = set()

    class Environment(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            read.add(name)
            return default

    resolve_settings({"project": "math", "run": "grpo"}, environment=Environment())
    given = {variable_name("project"), variable_name("run")}
    read = {name for name in read if name.startswith("TRMON_")}
    assert read | given == {variable_name(name) for name in CLIENT_SETTINGS}


SECRET = "s3cret-value"


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


def test_a_command_prints_the_variable_and_not_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, tmp_path / "url", SECRET.encode(), name="SLACK_URL")
    refused = trmon("serve", "--port", 0, "--data-dir", tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "TRMON_SLACK_URL: must be a URL" in refused.stderr
    assert SECRET not in refused.stderr
