"""What is durable, over SQL: the only part that imports SQLAlchemy; it returns domain values, never rows."""

from trmon.store.registry.registry_entries import Arrival
from trmon.store.store import Role, Store

__all__ = ["Arrival", "Role", "Store"]
