"""Deliveries say which run and which episode of an alert they tell of, how often they were told, and why not.

Revision ID: 0002
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_DELIVERY = sa.table("delivery", *map(sa.column, ("id", "body", "state", "due_at", "made_at", "run_id", "told_state")))
_RUN = sa.table("run", *map(sa.column, ("id", "project", "name")))


def upgrade() -> None:
    """Add the columns; a delivery that is there already keeps no episode: it is told whatever happens."""
    with op.batch_alter_table("delivery") as table:
        table.add_column(sa.Column("made_at", sa.Double(), nullable=False, server_default="0"))
        table.add_column(sa.Column("run_id", _ID))
        table.add_column(sa.Column("episode", sa.Text()))
        table.add_column(sa.Column("told_state", sa.Text(), nullable=False, server_default="firing"))
        table.add_column(sa.Column("rounds", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("muted", sa.Text()))
        table.create_foreign_key("fk_delivery_run_id", "run", ["run_id"], ["id"], ondelete="CASCADE")
        table.create_index("ix_delivery_run_id", ["run_id", "id"])
    _name_runs(op.get_bind())
    op.execute(sa.update(_DELIVERY).values(made_at=_DELIVERY.c.due_at))
    with op.batch_alter_table("delivery") as table:
        table.alter_column("made_at", server_default=None)
        table.alter_column("told_state", server_default=None)
        table.alter_column("rounds", server_default=None)


def downgrade() -> None:
    """Drop them; the states that the earlier version does not know become `delivered`: neither is tried again."""
    later = _DELIVERY.c.state.in_(("standing", "muted"))
    op.execute(sa.update(_DELIVERY).where(later).values(state="delivered"))
    with op.batch_alter_table("delivery") as table:
        table.drop_index("ix_delivery_run_id")
        table.drop_constraint("fk_delivery_run_id", type_="foreignkey")
        for name in ("made_at", "run_id", "episode", "told_state", "rounds", "muted"):
            table.drop_column(name)


def _name_runs(connection: sa.Connection) -> None:
    """Say of the deliveries that are there which run they tell of, as their bodies do by its names."""
    runs = {(row.project, row.name): row.id for row in connection.execute(sa.select(_RUN))}
    for delivery_id, project, run, status in _told(connection):
        told = {"run_id": runs.get((project, run)), "told_state": status}
        connection.execute(sa.update(_DELIVERY).where(_DELIVERY.c.id == delivery_id).values(**told))


def _told(connection: sa.Connection) -> Iterator[tuple[int, str | None, str | None, str]]:
    for row in connection.execute(sa.select(_DELIVERY.c.id, _DELIVERY.c.body)).all():
        body: dict[str, Any] = json.loads(row.body)
        run = body.get("run")
        named = run if isinstance(run, dict) else {}
        yield row.id, named.get("project"), named.get("run"), body.get("status", "firing")
