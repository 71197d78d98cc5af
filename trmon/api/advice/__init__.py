"""The advice to a run's trainer."""
