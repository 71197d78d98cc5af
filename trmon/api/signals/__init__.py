"""Signals: the catalogue, and a run's series as JSON, CSV, parquet or Arrow."""
