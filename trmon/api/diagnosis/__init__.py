"""The diagnosis of a run."""
