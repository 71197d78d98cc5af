"""The schema of 0.2.0, from which databases are upgraded; a new one gets the tables of `trmon.store.schema` at once.

Revision ID: 0001
"""

from __future__ import annotations

revision = "0001"
down_revision = None
oldest_reader = "0001"
