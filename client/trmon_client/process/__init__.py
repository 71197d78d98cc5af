"""This process: its rank, its attempt and launch, and its exit."""
