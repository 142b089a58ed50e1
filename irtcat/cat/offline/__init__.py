"""Adaptive tests that run in a browser without a server: the test as data, the engine, the page."""
