"""What is durable, over SQL: the only part that imports SQLAlchemy; it returns domain values, never rows."""

from trmon.store.registry.registry_entries import ArrivedMessage
from trmon.store.store import ProcessRole, Store

__all__ = ["ArrivedMessage", "ProcessRole", "Store"]
