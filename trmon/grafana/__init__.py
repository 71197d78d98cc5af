"""The shipped Grafana dashboards, and the push to a Grafana over its HTTP API."""
