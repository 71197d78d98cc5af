"""What trmon knows and decides, pure: frozen values in, values with reasons out; no clock, no I/O, no logging."""
