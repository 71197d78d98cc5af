"""What a pass over a run needs besides the batch and the state."""
