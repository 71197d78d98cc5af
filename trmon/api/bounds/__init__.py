"""Error bounds of a horizon and its divergences."""
