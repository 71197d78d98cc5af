"""Garbage collection in a serving process."""

from __future__ import annotations

from tests.fixtures.command import run_python

SCRIPT = """
import gc, time
from trmon.bootstrap import app, background_services

background_services.tune_memory()
assert len(gc.get_objects()) < 1000, "a full collection examines little more than objects made after the start"
knot = [time]
knot.append(knot)
del knot
assert gc.collect() > 0, "later objects are still collected"
print(gc.get_threshold() == background_services.THRESHOLDS)
"""


def test_objects_of_the_start_are_left_out_of_collections() -> None:
    # In a process of its own: frozen objects cannot be restored.
    done = run_python(SCRIPT)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
