"""Reduction of tokens to columns: ratios, KL estimators, clipping and per-sequence sums."""
