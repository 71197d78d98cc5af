"""Quotas: list and set them."""
