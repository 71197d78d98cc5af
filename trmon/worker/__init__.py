"""The worker: reads new messages of each run, closes batches, evaluates rules and writes the results."""
