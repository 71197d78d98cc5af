"""Paired interventions: one run up to a trigger, and several ways to continue from it, compared."""
