"""How fast this machine does what a service does: the CPU time of a small sample of its work."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from trmon_client.core import wire
from trmon_client.core.statistics import columns

SHAPE = (64, 256)
ROUNDS = 15
REPEATS = 5


def calibration_ms() -> float:
    """Return the CPU ms of this thread for reading, checking and packing a report: the least of 15 means.

    The sample is fixed, so that its time on two machines can be compared; it takes a fraction of a second.
    """
    random = np.random.default_rng(0)
    old = -random.gamma(0.4, 0.8, SHAPE)
    new = np.minimum(old + random.normal(0, 0.02, SHAPE), 0)
    made = columns(old_logprobs=old, logprobs=new, mask=np.ones(SHAPE, bool))
    sample = wire.Report(project="p", run="r", attempt="a", launch="l", step=0, parcel=wire.pack_columns(made))
    encoded = wire.encode(sample)

    def work() -> None:
        report = wire.decode(encoded, media_type=wire.MSGPACK)
        assert isinstance(report, wire.Report)
        packed, _ = wire.storable_columns(report)
        wire.pack_columns(wire.columns_of_packed(report, packed))

    return min(_mean_ms(work) for _ in range(ROUNDS))


def _mean_ms(work: Callable[[], None]) -> float:
    began = time.thread_time()
    for _ in range(REPEATS):
        work()
    return (time.thread_time() - began) / REPEATS * 1000
