"""Attempts: definition to result, people, monitoring, recalibration."""
