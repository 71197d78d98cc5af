"""Find the run and the attempt of a message, and create them when they first appear."""
