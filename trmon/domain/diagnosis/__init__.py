"""Diagnosis: finds the cause of a run's drift from its newest signals, with evidence and a remedy."""
