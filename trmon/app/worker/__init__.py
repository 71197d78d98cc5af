"""The worker: reads what came of each run, closes what is due, and writes what follows."""
