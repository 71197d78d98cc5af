"""The risk that a run's collapse begins within 200 steps: inputs, their history, and the fitted model."""
