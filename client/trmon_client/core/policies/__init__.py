"""Policies: criteria, presets, token rules, and the decision they make."""
