"""Text of the trainer's that databases refuse: made safe when received, and the run is judged to its end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.worker.watched_run import ORIGIN, RecordingObserver, finish, receive, rows_of, scheduler_over, step_of
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon_client.core import wire

HOSTILE = "a\0b\x1b[2J\x9b"
SAFE = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"


LOSSES = wire.Losses(warnings={"repeated_chunk": HOSTILE}, refused_policies={"hash": HOSTILE})
MESSAGES: list[Any] = [
    wire.Start(**ORIGIN, owner="me", config={HOSTILE: [HOSTILE, {"a": HOSTILE}]}, client=HOSTILE),
    step_of(0, losses=LOSSES),
    step_of(1),
    wire.Pause(**ORIGIN, sequence=1, reason=HOSTILE),
    finish(1, outcome="crashed", error=HOSTILE, traceback=HOSTILE, reason=HOSTILE, signal=HOSTILE, losses=LOSSES),
]


def test_text_that_databases_refuse_does_not_stop_the_judging(store_on_each: Store) -> None:
    store, observer = store_on_each, RecordingObserver()
    run_id = receive(store, *map(wire.with_safe_texts, MESSAGES), at=0.0)
    scheduler_over(store.run_log, observer).run_passes([run_id], now=0.0)
    run = store.run_log.runs.by_id(run_id)
    assert observer.failures == []
    assert (run.state, len(rows_of(store, run_id))) == (RunState.CRASHED, 2)
    assert run.ending is not None
    assert (run.ending.error, run.ending.reason, run.config) == (SAFE, SAFE, {SAFE: [SAFE, {"a": SAFE}]})


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_the_texts_of_a_message_are_safe_once_it_is_received(message: wire.Message) -> None:
    safe = wire.with_safe_texts(message)
    assert all(mark not in text for text in texts_of(msgspec.to_builtins(safe)) for mark in "\0\x1b\x9b")
    assert wire.with_safe_texts(safe) == safe
    assert wire.decode(wire.encode(message)) == message, "the trainer's text is no reason to refuse a message"


def texts_of(value: object) -> list[str]:
    """Return all keys and texts of a document."""
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [value] if isinstance(value, str) else [text for item in items for text in texts_of(item)]
