"""Unknown TRMON_* variables are reported with the most similar known one."""

from __future__ import annotations

import pytest

from trmon.config.settings import CLIENT_SETTINGS, Settings, unknown_variables
from trmon_client.config.service_address import variable_name
from trmon_client.config.settings import resolve_settings


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


def test_the_variables_that_kubernetes_sets_for_a_service_named_trmon_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
