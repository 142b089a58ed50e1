"""The belief about a subject's ability: on a line or in space, and the pool of items."""
