"""The first tables.

Revision ID: 0001
Revises:
"""

from alembic import op

from irtcat.service.storage.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    metadata.create_all(op.get_bind())
