"""Batches: which reports they wait for, when they close, what is kept of them."""
