"""The recorder: keeps the tokens of the last steps in the trainer and writes them to disk when something is wrong."""
