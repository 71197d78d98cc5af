"""Signals that the service derives, and the windows of past values that rules read."""
