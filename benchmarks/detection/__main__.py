"""python -m benchmarks.detection: record runs with known faults, and print how well trmon finds them."""

from benchmarks.detection.command import app

app()
