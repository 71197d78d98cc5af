"""How a run's bounds are adapted: its setting, and what the controllers propose now."""
