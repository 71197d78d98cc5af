"""The deliveries of notifications: sent, pending, muted or dead."""
