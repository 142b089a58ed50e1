"""What the service sends: audit, webhooks, grades."""
