"""Protect the trainer: no exception leaves the client, each warning appears once, losses are counted."""
