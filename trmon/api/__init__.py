"""The HTTP API: one file a noun, its routes and what only they need; no formulas, no SQL."""
