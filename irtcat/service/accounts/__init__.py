"""Who may do what: accounts with roles, tokens, signed media addresses."""
