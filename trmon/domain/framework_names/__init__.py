"""Metric names of other RL frameworks, and the signals of trmon that are the same number, in one data file."""
