"""The active alert rules."""
