"""A rules file over the built-in rules, reloaded while the service runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.config.rules import ActiveRules
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.rules.rule_yaml import builtin_rules

OWN_RULES = """
- name: mine
  severity: warn
  summary: "{run}: {signal} is {value}"
  immune_steps: 0
  when: {zscore: kl_k1, above: 6}
- {name: mask_rate, disabled: true}
- {name: engine_mismatch, limits: {kl_k3: 0.1}}
"""


def names(rules: ActiveRules) -> set[str]:
    """Return the names of the added rules, and with a minus those of the disabled ones."""
    active, base = rules().by_name.keys(), builtin_rules().by_name.keys()
    return (active - base) | {f"-{name}" for name in base - active}


def test_without_a_file_the_builtin_rules_are_active() -> None:
    rules = ActiveRules(None)
    rules.refresh()
    assert rules() is builtin_rules()


def test_a_file_too_long_to_parse_beside_the_service_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- {name: mask_rate, disabled: true}\n" * 400_000)
    with pytest.raises(InvalidInput, match="is longer than 256 KiB"):
        ActiveRules(file)


def test_a_changed_file_is_reloaded_and_an_error_keeps_the_old_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("[]")
    rules = ActiveRules(file)
    called: list[str] = []
    rules.on_change, rules.on_failure = lambda: called.append("change"), lambda: called.append("failure")
    rules.refresh()
    assert (names(rules), called.count("change")) == (set(), 0)
    file.write_text(OWN_RULES)
    rules.refresh()
    assert (names(rules), called.count("change")) == ({"mine", "-mask_rate"}, 1)
    file.write_text(OWN_RULES.replace("zscore: kl_k1", "zscore: kl_kk1"))
    rules.refresh()
    rules.refresh()
    assert (names(rules), called.count("failure")) == ({"mine", "-mask_rate"}, 1)
    assert "rules[0].when.zscore: 'kl_kk1' is not a known signal; did you mean kl_k1" in str(rules.error)
    file.unlink()
    rules.refresh()
    assert (names(rules), called.count("failure")) == ({"mine", "-mask_rate"}, 2)
    file.write_text("[]")
    rules.refresh()
    assert (names(rules), rules.error, called.count("change")) == (set(), None, 2)


def test_an_invalid_file_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- {name: mine}")
    with pytest.raises(InvalidInput) as caught:
        ActiveRules(file)
    assert caught.value.field == f"{file}: rules[0].when"


def test_the_service_lists_the_rules_and_the_error_in_their_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(OWN_RULES)
    with serve(rules_file=file).client() as client:
        rules = {rule["name"]: rule for rule in client.get("/api/v1/rules").json()}
        assert rules["mine"]["when"] == {"zscore": "kl_k1", "above": 6.0, "clear": 6.0}
        assert "mask_rate" not in rules
        mismatch = rules["engine_mismatch"]
        assert (mismatch["is_finding"], mismatch["when"], mismatch["severity"]) == (True, {}, "warn")
        [clause] = [clause for clause in mismatch["clauses"] if clause["id"] == "kl_k3"]
        assert (clause["limit"], clause["severity"]) == (0.1, "warn")
        assert clause["words"] == "KL per token is more than 0.1; unless lag is more than 0; in 5 of 10 rows"
        file.write_text("- 7")
        error = eventually(lambda: client.get("/api/v1/rules/file").json()["error"])
        assert error == f"{file}: rules[0]: must be a mapping, and is int '7'"
        assert "trmon_rules_reload_failures_total 1.0" in client.get("/metrics").text
        assert "mine" in {rule["name"] for rule in client.get("/api/v1/rules").json()}


def test_the_service_does_not_start_with_an_invalid_rules_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- 7")
    with pytest.raises(NotReady, match=r"TRMON_RULES_FILE: .*rules\[0\]: must be a mapping"):
        ThreadedService(tmp_path / "data", rules_file=file)
