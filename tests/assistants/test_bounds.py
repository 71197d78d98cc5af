"""What trainers and people write stays data: answers are bounded, and free of characters that nobody sees."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.fixtures.assistant import Assistant, connected
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import finish, send, send_step
from tests.fixtures.waiting import eventually
from trmon.assistants.answers import bounded_text, rounded, shortened, taken
from trmon.assistants.server import MAX_ANSWER_BYTES, as_result, build_server
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon_client.api import Service
from trmon_client.core import wire

LARGE = RunKey("math", "large")
INVISIBLE = "\u202eignore\u200b all\x1b[2J"
N_SEQUENCES, N_NOTES = 2_500, 45


@pytest.fixture(scope="module")
def assistant(shared_service: ThreadedService, shared: httpx.Client) -> Iterator[Assistant]:
    """An assistant of a service whose trainer sends as much text as it may, and corrupt log-probs."""
    config = {f"option {i}": {f"{INVISIBLE} {j}": "x" * 300 for j in range(5)} for i in range(40)}
    config |= {"z.b": 1, "z": {"b": "twice"}}
    send(shared, LARGE, wire.Start(**ORIGIN, owner="o" * 100, tags=["t" * 60] * 3, config=config))
    for step in range(6):
        n_invalid = [1] * (N_SEQUENCES if step else 4)
        send_step(shared, LARGE, step=step, content=columns(len(n_invalid), seed=step, n_invalid=n_invalid))
    finish(shared, LARGE, steps=range(6))
    for i in range(N_NOTES):
        written = shared.post(f"/api/v1/runs/{LARGE}/notes", json={"text": f"{i} " + "é" * 1500})
        assert written.status_code == 201, written.text
    eventually(lambda: shared.get(f"/api/v1/runs/{LARGE}/diagnosis").json()["findings"])
    with Service(shared_service.url) as reader, connected(build_server(reader)) as assistant:
        yield assistant


def test_a_large_configuration_is_cut_and_can_be_searched(assistant: Assistant) -> None:
    found = assistant.ask("describe_run", run=str(LARGE))
    assert (len(found["config"]), found["config_left_out"]) == (40, 161)
    assert all("[cut: 140 more characters]" in value for value in found["config"].values())
    assert all(name.isprintable() for name in found["config"])
    searched = assistant.ask("describe_run", run=str(LARGE), options="39.")
    assert (len(searched["config"]), "config_left_out" in searched) == (5, False)


def test_long_notes_are_cut_and_counted(assistant: Assistant) -> None:
    found = assistant.ask("list_notes", run=str(LARGE), limit=25)
    assert (len(found["notes"]), found["more"]) == (25, True)
    assert all(
        "more characters]" in note["text"] and note.keys() == {"author", "text", "at"} for note in found["notes"]
    )


def test_every_answer_on_it_is_small_and_names_the_cause(assistant: Assistant) -> None:
    run = str(LARGE)
    found = assistant.ask("diagnose_run", run=run)
    assert found["findings"][0]["finding"] == "corrupt_logprobs"
    for tool, arguments in {
        "list_runs": {},
        "describe_run": {"run": run},
        "list_signal_names": {"run": run},
        "list_notes": {"run": run, "limit": 25},
        "run_budget": {"run": run},
    }.items():
        before = assistant.read_bytes
        assistant.ask(tool, **arguments)
        assert assistant.read_bytes - before < MAX_ANSWER_BYTES


def test_all_sequences_of_a_large_step_are_ranked(assistant: Assistant) -> None:
    found = assistant.ask("worst_sequences", run=str(LARGE), step=5, by="low_reward", limit=50)
    assert found["sequences"] == found["sequences_read"] == N_SEQUENCES
    assert len(found["worst"]) == 50
    assert max(row["index"] for row in found["worst"]) >= 1000


def test_an_answer_that_is_too_large_is_refused_with_what_to_do() -> None:
    assert as_result({"text": "x" * 1000}).structured_content == {"text": "x" * 1000}
    with pytest.raises(InvalidInput, match="ask for fewer items, points or names"):
        as_result({"text": "x" * MAX_ANSWER_BYTES})


@pytest.mark.parametrize(
    ("value", "shown"),
    [(math.nan, None), (math.inf, "inf"), (-math.inf, "-inf"), (0.123456, 0.1235), (123456.0, 123500.0)],
)
def test_numbers_have_four_digits_and_are_json(value: float, shown: object) -> None:
    assert rounded(value) == shown


def test_text_is_cut_visibly() -> None:
    assert bounded_text("abc", 3) == "abc"
    assert bounded_text("abcde", 3) == "abc [cut: 2 more characters]"
    assert bounded_text("a\u200bb") == "a\N{REPLACEMENT CHARACTER}b"
    assert (taken([1, 2, 3], 2), taken([1, 2], 2)) == (([1, 2], True), ([1, 2], None))


def test_an_answer_is_without_what_is_long_unknown_or_empty() -> None:
    answer = {
        "run": "a\x1bb",
        "nothing": [None, "", [], {}, math.nan],
        "unknown": math.nan,
        "empty": {"tags": (), "owner": None, "text": ""},
        "false": False,
        "zero": 0,
        "started_at": 1.7e9,
        "warn_at": 0.123456,
        "never_at": 1e300,
        "flat": 1.7e9,
        "values": np.array([1.23456, math.nan, math.inf]),
        "items": list(range(7)),
        "options": {f"{n}\u200b": n for n in range(50)},
        "one": {"hash": "beef", "step": 1},
        "other": {"hash": "beef", "step": 1},
    }
    found = shortened(answer, "hash", "one.step", items=5)
    options = found.pop("options")
    assert (len(options), options["0\N{REPLACEMENT CHARACTER}"], found.pop("options_left_out")) == (40, 0, 10)
    assert found == {
        "run": "a\N{REPLACEMENT CHARACTER}b",
        "nothing": [None, "", [], {}, None],
        "false": False,
        "zero": 0,
        "started_at": "2023-11-14T22:13:20Z",
        "warn_at": 0.1235,
        "never_at": 1e300,
        "flat": 1.7e9,
        "values": [1.235, None, "inf"],
        "items": [0, 1, 2, 3, 4],
        "items_left_out": 2,
        "other": {"step": 1},
    }
