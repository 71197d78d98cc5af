"""Sweeps: hundreds of experiments with labels and signals, one parquet file each."""
