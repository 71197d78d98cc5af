"""What a run's policies decided, step by step."""
