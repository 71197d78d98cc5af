"""The code of a process that appends reports until it is killed and prints each acknowledgement."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CHILD = """
import sys, time
from tests.store.builders import NOW, report_intake
from trmon.store import Store

store = Store.open(sys.argv[1])
store.migrate()
for first in range(0, 1_000_000, 16):
    while store.writer.depth > 1000:
        time.sleep(0.001)
    intakes = [report_intake(step=step) for step in range(first, first + 16)]
    for step, future in zip(range(first, first + 16), store.reports.append(intakes, now=NOW)):
        future.add_done_callback(lambda done, step=step: print(step, done.result().status.value, flush=True))
"""
ENOUGH = 200
