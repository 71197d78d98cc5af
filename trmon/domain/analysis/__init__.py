"""What-if and distributions over stored sequences."""
