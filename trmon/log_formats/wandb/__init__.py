"""Files in which wandb keeps a run: records in chunks with checksums, some of which are steps of its history."""
