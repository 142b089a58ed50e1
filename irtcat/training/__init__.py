"""Training data: artificial crowds, filters by difficulty, curricula, training dynamics."""
