"""Interfaces of programs: the service's own, and 1EdTech's CAT 1.0."""
