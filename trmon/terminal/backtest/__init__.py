"""Backtests on the command line: histories of a running service, and results as text."""
