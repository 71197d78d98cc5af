"""Imported by a trainer's process: its exit may last 4 s, where the default of 2 s is too short for a stalled machine.

Of the default, a hanging upload leaves half a second for the spool.
"""

from __future__ import annotations

from functools import partial

from trmon_client.config import settings
from trmon_client.config.limits import Limits

settings.Limits = partial(Limits, exit_timeout_seconds=4.0)  # type: ignore[misc, assignment]
