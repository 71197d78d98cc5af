"""The tools: each asks a service one question and returns a small answer."""
