"""Rules: read from YAML, checked, tested, and what their conditions read."""
