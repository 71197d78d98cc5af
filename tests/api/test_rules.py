"""Routes of the active rules."""

from __future__ import annotations

import httpx


def test_a_rule_is_shown_with_what_to_do_and_its_finding(client: httpx.Client) -> None:
    listed = {rule["name"]: rule for rule in client.get("/api/v1/rules").json()}
    shown = client.get("/api/v1/rules/engine_mismatch").json()
    assert shown == listed["engine_mismatch"]
    assert (shown["finding"], shown["is_symptom"]) == ("A", False)
    assert "precision" in shown["runbook"]


def test_a_rule_that_does_not_exist_is_not_found(client: httpx.Client) -> None:
    answer = client.get("/api/v1/rules/nothing")
    assert answer.status_code == 404
    assert "nothing" in answer.json()["detail"]
