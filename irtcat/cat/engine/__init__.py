"""The engine: configuration, plan, and one step of an adaptive test."""
