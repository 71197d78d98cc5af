"""`trmon preflight`: where the log-probs of two engines come from, and how their comparison is printed."""
