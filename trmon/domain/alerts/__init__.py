"""The life of alerts, and who is told of them, when, and when not."""
