"""Grafana: the dashboards as they are shipped, and how they get into somebody's Grafana over its HTTP API."""
