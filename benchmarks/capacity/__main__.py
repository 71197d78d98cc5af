"""`python -m benchmarks.capacity`."""

from benchmarks.capacity.command import app

app()
