"""Puts the parts together: the ASGI app, its background services, and the worker processes."""
