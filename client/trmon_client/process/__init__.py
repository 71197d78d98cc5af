"""Who this process is: its rank, its attempt, its end."""
