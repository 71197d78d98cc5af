"""The testbed: a small policy learns by reinforcement, and is broken on purpose; the only part that imports torch."""
