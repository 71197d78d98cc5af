"""What holds for every test of the studies."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT, and so would the trainers that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
