"""Samplers and callbacks that plug filters and curricula into trainers: torch, huggingface, verl.

Each module needs the library of its name, and is imported by name.
"""

__all__ = ["huggingface", "torch", "verl"]
