"""The HTTP API: one package a noun, its routes and the schemas of its answers; no formulas, no SQL."""
