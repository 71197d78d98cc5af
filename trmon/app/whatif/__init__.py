"""What another policy would have made of a run's stored sequences."""
