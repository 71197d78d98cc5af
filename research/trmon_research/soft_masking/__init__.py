"""Soft against hard masking: paired runs of the lab from one state, and the intervals of what differs."""
