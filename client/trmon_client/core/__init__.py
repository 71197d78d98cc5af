"""The mathematics and the wire format: pure functions of arrays, without clock, I/O or hidden randomness."""
