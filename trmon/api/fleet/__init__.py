"""The fleet: many runs in one answer, each with its verdict, sorted by urgency."""
