"""Where the sequences of a run stood against its thresholds."""
