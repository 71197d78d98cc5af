"""Carries messages to the service without blocking the trainer: queue, encoder, retry buffer, spool, uploader."""
