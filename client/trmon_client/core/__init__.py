"""The mathematics and the wire format, pure: arrays in, arrays out; no clock, no I/O, no hidden randomness."""
