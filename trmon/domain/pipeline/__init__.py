"""The pipeline that a closed batch goes through, and the rules over a run's state."""
