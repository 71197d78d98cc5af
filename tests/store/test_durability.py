"""Tests durability: acknowledged reports survive the process that acknowledged them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from tests.store.builders import append, report_intake, stored_reports
from tests.store.children import Acknowledgement, appending
from trmon.domain.messages import WriteOutcome
from trmon.store import Store

ENOUGH = 200


def test_a_killed_process_loses_no_acknowledged_report(url: str) -> None:
    answers: list[Acknowledgement] = []
    with appending(url) as (child, pipe), suppress(EOFError):
        while True:
            answers.append(pipe.recv())
            if len(answers) == ENOUGH:
                child.kill()

    acknowledged = {step for step, outcome in answers if outcome is WriteOutcome.STORED}
    store = Store.open(url)
    stored = Counter(found.report.step for found in stored_reports(store, 1))
    resent = append(store, *(report_intake(step=step) for step in sorted(acknowledged)))
    store.close()
    assert len(acknowledged) >= ENOUGH
    assert acknowledged <= stored.keys()
    assert set(stored.values()) == {1}
    assert {receipt.status for receipt in resent} == {WriteOutcome.DUPLICATE}
