"""Notifications: deliver the outbox to the receivers of alerts."""
