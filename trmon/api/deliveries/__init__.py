"""Which notifications were sent, wait, were muted or given up."""
