"""Rules: their conditions, measures and YAML form, and the built-in rules."""
