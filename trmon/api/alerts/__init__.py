"""Alerts: list them, acknowledge them, read their transitions."""
