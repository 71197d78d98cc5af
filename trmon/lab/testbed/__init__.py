"""The lab's trainer: a tiny policy, its task, its rollout engine, and the faults that can be injected."""
