"""What a run's trainer is advised to do."""
