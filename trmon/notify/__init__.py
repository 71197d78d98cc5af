"""Receivers of alerts: each turns one delivery into one request, and says what became of it."""
