"""Parallel test forms."""
