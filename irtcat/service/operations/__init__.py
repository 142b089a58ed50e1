"""Running the service: server, maintenance, and what runs beside requests."""
