"""The testbed: trains a small policy by reinforcement learning and injects faults; only this package imports torch."""
