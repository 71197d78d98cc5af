"""A fence: lets the sender's thread wait for a device, so that the trainer's never does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from trmon_client.core.arrays import cuda_devices


def fence(values: Iterable[object]) -> Callable[[], None]:
    """Return what waits until the values' devices have done what the calling thread asked of them by now.

    Another thread works on another stream, which would read tensors before they are computed.
    """
    events = []
    for device in cuda_devices(values):
        cuda = sys.modules["torch"].cuda
        events.append(cuda.Event())
        events[-1].record(cuda.current_stream(device))

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait
