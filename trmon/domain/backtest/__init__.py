"""Backtests: what rules would have raised, and policies masked, over the stored history of runs."""
