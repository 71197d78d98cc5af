"""/metrics, for Prometheus."""
