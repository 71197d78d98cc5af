"""Prometheus metrics: the service's own counters, and the gauges of active runs."""
