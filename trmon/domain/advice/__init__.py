"""Advice to a trainer: learning rate, KL coefficient, stop."""
