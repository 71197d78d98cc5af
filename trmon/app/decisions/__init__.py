"""What a run's policies decided, over its steps."""
