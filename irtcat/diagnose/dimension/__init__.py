"""Dimensionality: correlations, factors and parallel analysis."""
