"""Tests durability: acknowledged reports survive the process that acknowledged them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter

from tests.store.builders import append, report_intake, stored_reports
from tests.store.gate import Gate
from tests.store.writing_child import CHILD, ENOUGH, ROOT
from trmon.domain.messages import WriteOutcome
from trmon.store import Store


def test_a_killed_process_loses_no_acknowledged_report(url: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, url], cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(ENOUGH)]
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.read().splitlines()
    child.stdout.close()
    child.wait(10)

    acknowledged = {int(line.split()[0]) for line in lines if line.strip().endswith(WriteOutcome.STORED.value)}
    store = Store.open(url)
    stored = Counter(found.report.step for found in stored_reports(store, 1))
    resent = append(store, *(report_intake(step=step) for step in sorted(acknowledged)))
    store.close()
    assert len(acknowledged) >= ENOUGH
    assert acknowledged <= stored.keys()
    assert set(stored.values()) == {1}
    assert {receipt.status for receipt in resent} == {WriteOutcome.DUPLICATE}


def test_another_process_can_read_during_writes(store: Store, url: str) -> None:
    append(store, report_intake(step=0))
    reading = (
        "import sys; from trmon.domain.pipeline.run_update import Frontier; from trmon.store import Store;"
        "store = Store.open(sys.argv[1]); store.check();"
        "print(len(store.reports.unread_of(1, Frontier(), limit=10).reports)); store.close()"
    )
    with Gate(store.writer):
        found = subprocess.run(
            [sys.executable, "-c", reading, url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    assert found.stdout.strip() == "1"
