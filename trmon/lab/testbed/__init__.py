"""The trainer of the lab: a tiny policy, its task, its rollout engine, and the faults that can be injected."""
