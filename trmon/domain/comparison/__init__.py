"""Comparisons of runs: where they part, and how their configurations differ."""
