"""The policy of a run: read, change, roll back."""
