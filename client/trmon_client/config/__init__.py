"""Settings of the client, the limits of its queues, and the launcher's variables."""
