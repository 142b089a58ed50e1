"""Marginal maximum likelihood by the EM algorithm."""
