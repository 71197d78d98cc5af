"""python -m benchmarks.collapse.rivals RUNS_FOLDER: replay stored runs through other monitors."""

from benchmarks.collapse.rivals.command import app

app()
