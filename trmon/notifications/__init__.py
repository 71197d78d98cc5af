"""From the outbox to the receivers of alerts."""
