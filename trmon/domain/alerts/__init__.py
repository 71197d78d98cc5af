"""Alerts: their transitions, and which notifications of them reach which receivers."""
