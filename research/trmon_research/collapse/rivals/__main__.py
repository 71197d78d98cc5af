"""python -m trmon_research.collapse.rivals RUNS_FOLDER: replay stored runs through other monitors."""

from trmon_research.collapse.rivals.command import app

app()
