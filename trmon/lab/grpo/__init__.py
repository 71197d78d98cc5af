"""The reinforcement-learning testbed: GRPO on tiny policies, with a rollout engine whose mismatch is configured."""
