"""Silences: create, list and end them."""
