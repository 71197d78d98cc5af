"""The lab: trains small policies by reinforcement learning with faults; only this package imports torch."""
