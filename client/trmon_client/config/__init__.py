"""Settings of the client, the trainer's configuration as plain values, and the service's address."""
