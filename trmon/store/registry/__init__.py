"""Which run and attempt a message belongs to; creates both on first sight."""
