"""What is wrong with a run, defined once: findings and their remedies."""
