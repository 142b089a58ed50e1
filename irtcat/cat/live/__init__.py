"""Live sessions: the log, the store, the status, and drivers."""
