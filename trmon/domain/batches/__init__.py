"""Batches: how they are assembled from reports, when they close, and the row that is stored."""
