"""Alembic's environment: migrations run on the connection that `upgrade` gives."""

from alembic import context

from irtcat.service.storage.migrations import VERSION_TABLE
from irtcat.service.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=False,  # the caller's transaction holds all of it
)
context.run_migrations()
