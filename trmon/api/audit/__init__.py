"""The audit log: list administrative actions."""
