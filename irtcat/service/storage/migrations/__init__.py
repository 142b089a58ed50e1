"""Migrations of the service's tables, by Alembic; the store of sessions creates its own."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from irtcat.cat import StoreError
from irtcat.service.storage.database import EngineDatabase

__all__ = ["upgrade"]

VERSION_TABLE = "service_version"


def upgrade(database: EngineDatabase) -> None:
    """Create the tables of the service in a store.

    Raises:
        StoreError: for tables of another version.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    script = ScriptDirectory.from_config(config)
    options = {"version_table": VERSION_TABLE}
    with database.reading():
        context = MigrationContext.configure(database.connection, opts=options)
        current = context.get_current_revision()
    if current == script.get_current_head():
        return
    known = {revision.revision for revision in script.walk_revisions()}
    if current is not None and current not in known:
        must = f"tables of the service of revision {script.get_current_head()}"
        raise StoreError(f"{database.label}: expected {must}. Got revision {current}.")
    with database.writing(alone=True):
        config.attributes["connection"] = database.connection
        command.upgrade(config, "head")
