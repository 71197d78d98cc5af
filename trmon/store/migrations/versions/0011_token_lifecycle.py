"""A revoked token keeps its row; tokens of different projects may share a name; a token knows when it was last used.

Revision ID: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_ADDED = ("last_used_at", "replaced_at", "revoked_at")
_CURRENT = "replaced_at IS NULL AND revoked_at IS NULL"


def upgrade() -> None:
    """Add the columns, and make names unique per project among current tokens."""
    with op.batch_alter_table("token") as table:
        table.drop_constraint("uq_token_name", type_="unique")
        for name in _ADDED:
            table.add_column(sa.Column(name, sa.Double()))
    for index, columns, scope in (
        ("ix_token_project_name", ["project", "name"], "project IS NOT NULL"),
        ("ix_token_name", ["name"], "project IS NULL"),
    ):
        where = sa.text(f"{_CURRENT} AND {scope}")
        op.create_index(index, "token", columns, unique=True, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Delete tokens that are not current and, of those that share a name, all but the oldest."""
    for index in ("ix_token_project_name", "ix_token_name"):
        op.drop_index(index, "token")
    op.execute("DELETE FROM token WHERE replaced_at IS NOT NULL OR revoked_at IS NOT NULL")
    op.execute("DELETE FROM token WHERE id NOT IN (SELECT min(id) FROM token GROUP BY name)")
    with op.batch_alter_table("token") as table:
        for name in _ADDED:
            table.drop_column(name)
        table.create_unique_constraint("uq_token_name", ["name"])
