"""Paired interventions: one run up to a trigger, and several ways to go on from it, compared."""
