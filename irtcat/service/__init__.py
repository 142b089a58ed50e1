"""Service: adaptive tests that people take in a browser, on SQLite or PostgreSQL."""
