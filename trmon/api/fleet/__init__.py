"""The fleet: many runs in one response, each with its verdict."""
