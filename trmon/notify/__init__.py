"""Alert notifications: the outbox's dispatcher, and one file for each receiver."""
