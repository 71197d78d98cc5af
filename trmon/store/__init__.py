"""Storage over SQL: the only package that imports SQLAlchemy or Redis; it returns domain values, never rows."""

from trmon.store.registry import ArrivedMessage
from trmon.store.store import ProcessRole, Store

__all__ = ["ArrivedMessage", "ProcessRole", "Store"]
