"""Backup, restore, database checks, and the exclusive lock on a SQLite file."""
