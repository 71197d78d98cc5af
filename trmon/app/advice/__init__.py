"""What is advised to a run's trainer."""
