"""Samplers and callbacks that plug filters and curricula into trainers: torch, huggingface, verl.

Each module needs the library of its name, and is imported by name.
"""

from irtcat._common.lazy import public_names

__all__ = ["huggingface", "torch", "verl"]

__dir__ = public_names(__name__)
