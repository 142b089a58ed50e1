"""Attempts: definition to result, people, proctoring, recalibration."""
