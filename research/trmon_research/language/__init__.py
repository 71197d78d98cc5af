"""A small language model of Python's own sources, trained here, and its reinforcement learning under trmon."""
