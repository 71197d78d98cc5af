"""Middleware of every request: gateway, authentication, limits, bodies, problem details; dependencies of routes."""
