"""The testbeds: train small policies by reinforcement learning and inject faults; only this package imports torch."""
