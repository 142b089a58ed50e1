"""What the service sends: the audit log and webhooks."""
