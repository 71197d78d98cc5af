"""Variables that look like trmon's are known, or said to be none."""

from __future__ import annotations

import pytest

from trmon.config.environment_check import OF_CLIENTS, unknown_variables
from trmon.config.settings import Settings
from trmon_client.config.settings import resolve_settings, variable_name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TRMON_SLACK_ULR", "TRMON_SLACK_URL"),
        ("TRMON_DATABASEURL", "TRMON_DATABASE_URL"),
        ("TRMON_GRACE_SECOND", "TRMON_GRACE_SECONDS"),
        ("TRMON_SPOOLDIR", "TRMON_SPOOL_DIR"),
        ("TRMON_TYPO", None),
        ("TRMON_", None),
    ],
)
def test_what_nothing_reads_is_named_with_the_nearest(name: str, near: str | None) -> None:
    assert list(unknown_variables(["PATH", "TRMON_PORT", name, "MYTRMON_X"])) == [(name, near)]


def test_what_kubernetes_tells_of_a_service_called_trmon_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "TRMON_PORT": "tcp://10.0.0.7:8642",
        "TRMON_PORT_8642_TCP": "tcp://10.0.0.7:8642",
        "TRMON_PORT_8642_TCP_ADDR": "10.0.0.7",
        "TRMON_SERVICE_HOST": "10.0.0.7",
        "TRMON_SERVICE_PORT": "8642",
        "TRMON_SERVICE_PORT_HTTP": "8642",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert Settings().port == Settings.model_fields["port"].default
    assert not list(unknown_variables(told))


def test_every_setting_of_service_and_client_is_known() -> None:
    assert not list(unknown_variables(f"TRMON_{name.upper()}" for name in (*Settings.model_fields, *OF_CLIENTS)))


def test_the_clients_variables_are_those_that_it_reads() -> None:
    read: set[str] = set()

    class Environment(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            read.add(name)
            return default

    resolve_settings({"project": "math", "run": "grpo"}, environment=Environment())
    given = {variable_name("project"), variable_name("run")}
    assert {name for name in read if name.startswith("TRMON_")} | given == {variable_name(name) for name in OF_CLIENTS}
