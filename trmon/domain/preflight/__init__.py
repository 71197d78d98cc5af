"""Preflight: compares what two engines with equal weights say of the same tokens, before a run."""
