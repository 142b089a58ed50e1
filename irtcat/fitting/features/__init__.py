"""Features of subjects and items in a fit."""
