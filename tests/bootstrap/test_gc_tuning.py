"""The garbage collector of a process that answers."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, time
from trmon.app import collector, service

collector.settle()
assert len(gc.get_objects()) < 1000, "a full collection looks at little more than what comes after the start"
knot = [time]
knot.append(knot)
del knot
assert gc.collect() > 0, "what comes later is still collected"
print(gc.get_threshold() == collector.THRESHOLDS)
"""


def test_what_the_start_made_is_left_out_of_collections() -> None:
    # In a process of its own: what is frozen stays frozen.
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
