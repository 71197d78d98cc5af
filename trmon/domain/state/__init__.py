"""What the pipeline remembers of a run, and what one pass writes."""
