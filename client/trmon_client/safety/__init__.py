"""What keeps the trainer safe: no exception leaves the client, warnings appear once, losses are counted."""
