"""Tiny autoregressive policies: a GRU, a transformer with a key-value cache, and a layer of experts."""
