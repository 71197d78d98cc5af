"""The budget of a run."""
