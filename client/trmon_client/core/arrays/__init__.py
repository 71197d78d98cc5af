"""Array functions over numpy and torch, and copies between devices."""
