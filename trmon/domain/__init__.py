"""The domain logic of trmon: pure functions over frozen values, without clock, I/O or logging."""
