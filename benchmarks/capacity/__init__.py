"""Measures what each kind of work costs each station, fits the model of capacity, and compares it with measurements."""
