"""What another policy would have masked in a run's stored sequences."""
