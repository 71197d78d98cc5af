"""Families of tasks whose answers can be verified, over a small vocabulary with an end-of-sequence token."""
