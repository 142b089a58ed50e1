"""Migrations make the tables that the code uses, and leave what they do not know."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from irtcat.cat import StoreError
from irtcat.service.assembly import open_service
from irtcat.service.storage.migrations import VERSION_TABLE
from irtcat.service.storage.tables import metadata


def test_the_tables_are_those_of_the_code(database):
    """A change of tables.py without a migration fails here."""
    open_service(database, create=True)
    known = set(metadata.tables)
    with database.reading():
        options = {"include_object": lambda thing, name, kind, *_: kind != "table" or name in known}
        context = MigrationContext.configure(database.connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_a_second_start_changes_nothing(database):
    secret = open_service(database, create=True).secret
    with database.reading():
        before = database.tables()
    assert open_service(database).secret == secret
    with database.reading():
        assert database.tables() == before


def test_tables_of_another_version_are_refused(database):
    open_service(database, create=True)
    with database.writing():
        database.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"of revision 0001\. Got revision 9999\."):
        open_service(database)
