"""The state of the pipeline of a run, and the update that one pass writes."""
