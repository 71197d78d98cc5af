"""Tokens: create, list and revoke them."""
