"""The adaptation of a run's bounds: its setting, and what the controllers propose now."""
