"""The reduction of large float32 batches on the host, in less than half the time of the general one."""
