"""Incidents: one illness of a run from its first finding to its end, told once."""
