"""Ingest routes for trainers: one message, or a bundle."""
