"""Notes on runs and steps: list, write and delete them."""
