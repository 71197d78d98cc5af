"""python -m trmon_research.detection: record runs with known faults, and print how well trmon finds them."""

from trmon_research.detection.command import app

app()
