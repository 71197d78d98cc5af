"""What carries messages to the service and never makes the trainer wait: outbox, backlog, spool, courier."""
