"""What is fitted: groups, loading patterns, item models, users' priors."""
