"""The demo: the embedded service, a healthy run and an ill one, and what trmon says of them while they train."""
