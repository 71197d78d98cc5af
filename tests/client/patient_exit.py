"""Imported by a trainer's process: its exit may last 4 s, where the default of 2 s is too short for a stalled machine.

Of the default, a hanging upload leaves half a second for the spool.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

from trmon_client.config.settings import Limits

patch("trmon_client.config.settings.Limits", partial(Limits, exit_timeout_seconds=4.0)).start()
