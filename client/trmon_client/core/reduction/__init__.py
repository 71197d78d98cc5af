"""From tokens to columns: ratios, KL estimators, clipping, per-sequence sums."""
