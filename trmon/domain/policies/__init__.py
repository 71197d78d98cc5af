"""Policies of runs: their versions, and those that reports may name."""
