"""Analyses of stored sequences: what-if replays and distributions."""
