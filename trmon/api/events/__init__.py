"""Server-Sent Events of runs."""
