"""Running the service: server, maintenance, sweeping, warming."""
