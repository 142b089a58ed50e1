"""Middleware: what every request passes before its route, and its response afterwards."""
