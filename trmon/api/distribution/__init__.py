"""The distribution of a run's sequences against its thresholds."""
