"""Metrics, limits, logs and errors of the service."""
