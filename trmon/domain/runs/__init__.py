"""Runs: attempts, states, liveness and duplicate trainers."""
