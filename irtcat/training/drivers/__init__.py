"""Samplers and callbacks of training frameworks."""
