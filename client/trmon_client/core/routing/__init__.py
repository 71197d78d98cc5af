"""Routing of mixtures of experts: which tokens meet other experts in training than in the rollout, and their load."""
