"""The interpreter's garbage collector, set for a process that answers: its pauses stop every thread."""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 20, 20)
"""A pass of the worker makes thousands of objects that end without it; by default it would look at them every 700."""


def tune_garbage_collector() -> None:
    """Leave all that the start made out of every later collection, and collect less often.

    Two hundred thousand objects of imported modules make a full collection, which comes every few hundred batches,
    stop the process for 50 to 350 ms: whoever waited for an alert or an answer waited for that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
