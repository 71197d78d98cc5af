"""The fleet and a run on a terminal: asked over HTTP, drawn as text, for people on a login node."""
