"""The service's database, tables, uploads and migrations."""
