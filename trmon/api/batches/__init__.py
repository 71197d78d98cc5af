"""The closed batches of a run, down to their sequences."""
