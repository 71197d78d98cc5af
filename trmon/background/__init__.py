"""Background threads: a poller, and the pruner that enforces retention."""
