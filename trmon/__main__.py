"""`python -m trmon` is the command `trmon`."""

from trmon.cli import app

app()
