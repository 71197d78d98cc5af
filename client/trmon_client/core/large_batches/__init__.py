"""Reduction of large float32 batches on the host, more than twice as fast as the general reduction."""
