"""The verdict on a run, and its sparklines."""
