"""Turns of an agent, from a client in enforce mode over the service and its API to the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.client.test_turn_masks import IDS, KEPT, POLICY, traces
from tests.client.trainer import settings
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting
from trmon_client.monitor import Monitor

STEPS = 3
RUN = "/api/v1/runs/math/grpo"


def train(url: str, folder: Path, *, policy: Any = POLICY, **turns: Any) -> None:
    """Report three steps of two traces: one turn of each is off-policy."""
    with Monitor(settings(folder, url=url, mode="enforce", policy=policy)) as monitor:
        for step in range(STEPS):
            decision = monitor.log_batch(step=step, chunks=1, **traces(), **turns)
            if policy is POLICY:
                assert decision.token_mask is not None
                assert decision.token_mask.tolist() == KEPT.tolist()


@pytest.fixture
def served(service: ThreadedService) -> Iterator[tuple[str, httpx.Client]]:
    with service.client() as client:
        yield service.url, client


def row(client: httpx.Client) -> dict[str, Any]:
    """Return the row of the last step, once it is closed."""

    def last() -> dict[str, Any]:
        answer = client.get(f"{RUN}/batches/{STEPS - 1}")
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    return eventually(last, bool)


def sequences(client: httpx.Client, **query: Any) -> Any:
    answer = client.get(f"{RUN}/batches/{STEPS - 1}/sequences", params={"names": "n_tokens", **query})
    assert answer.status_code == 200
    return answer.json()


def test_turns_are_decided_replayed_and_shown(
    served: tuple[str, httpx.Client], visiting: Visiting, tmp_path: Path
) -> None:
    url, client = served
    train(url, tmp_path, turn_ids=IDS)
    batch = row(client)
    assert (batch["mismatches"], batch["signals"]["mask_rate"]) == (0, 0.0)
    assert batch["signals"]["turn_mask_rate"] == 0.4
    # Of the 9 and 6 tokens of the two traces, rejected turns have 2 and 2.
    assert batch["signals"]["turn_mask_rate_tokens"] == 4 / 15

    brief = sequences(client)
    assert brief["turn_counts"] == {"n_turns": [3, 2], "n_rejected": [1, 1]}
    assert brief["turns"] is None
    first, second = sequences(client, turns=True)["turns"]
    assert first["columns"]["n_tokens"] == [3, 2, 4]
    assert first["accepted"] == [True, False, True]
    assert first["reasons"] == [None, "turn_max_abs_d", None]
    assert second["accepted"] == [False, True]
    assert [criterion["statistic"] for criterion in first["criteria"]] == ["turn_max_abs_d", "turn_mean_k3"]
    assert first["criteria"][0]["values"][1] == first["columns"]["total_max_abs_d"][1] > 0.5
    assert sequences(client, turns=True, first=1, limit=1)["turns"] == [second]

    tried = client.post(f"{RUN}/whatif", json={"policy": POLICY}).json()
    assert tried["turns"] == {"n_turns": 5 * STEPS, "mask_rate": 0.4}
    assert client.post(f"{RUN}/whatif", json={"policy": "trm"}).json()["turns"] is None

    page = visiting(url).go(f"/runs/math/grpo?step={STEPS - 1}")
    page.get_by_role("button", name="Turns of sequence 0").click()
    shown = page.get_by_label("Turns of sequence 0", exact=True).locator("table")
    expect(shown.locator("th")).to_have_text(["turn", "tokens", "turn_max_abs_d", "turn_mean_k3", "decision"])
    expect(shown.locator("tbody tr")).to_have_count(3)
    expect(shown.locator("tbody tr").nth(1)).to_contain_text("✕\u00a0turn_max_abs_d")
    expect(shown.locator("tbody tr").nth(2)).to_contain_text("accepted")
    page.get_by_label("Close the turns").click()
    expect(shown).to_have_count(0)


def test_turns_without_criteria_show_their_drift(
    served: tuple[str, httpx.Client], visiting: Visiting, tmp_path: Path
) -> None:
    url, client = served
    train(url, tmp_path, policy="trm_max", turn_ids=IDS)
    assert "turn_mask_rate" not in row(client)["signals"]
    found = sequences(client, turns=True)
    assert found["turn_counts"] == {"n_turns": [3, 2], "n_rejected": None}
    assert found["turns"][0]["accepted"] is None
    page = visiting(url).go(f"/runs/math/grpo?step={STEPS - 1}")
    page.get_by_role("button", name="Turns of sequence 1").click()
    heads = page.get_by_label("Turns of sequence 1", exact=True).locator("th")
    expect(heads).to_have_text(["turn", "tokens", "max |d|", "mean k3"])


def test_a_run_without_turns_has_no_column_of_them(
    served: tuple[str, httpx.Client], visiting: Visiting, tmp_path: Path
) -> None:
    url, client = served
    train(url, tmp_path, policy="trm_max")
    row(client)
    found = sequences(client, turns=True)
    assert (found["turn_counts"], found["turns"]) == (None, None)
    page = visiting(url).go(f"/runs/math/grpo?step={STEPS - 1}")
    expect(page.locator(".step tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="turns", exact=True)).to_have_count(0)
