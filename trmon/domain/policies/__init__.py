"""Policies of runs: their versions, and the registry of policies that reports may name."""
