"""Runs: attempts, life, verdict, and what is shown of them."""
