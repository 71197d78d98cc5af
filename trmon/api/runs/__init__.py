"""Runs: list, read, change, delete; and the step selection that other routes share."""
