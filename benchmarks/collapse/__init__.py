"""Runs of the lab, some of which collapse: files of `trmon lab sweep benchmarks/collapse/runs`, and their manifest."""
