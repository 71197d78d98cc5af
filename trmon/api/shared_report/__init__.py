"""The shared report: a run as one HTML file that needs no service."""
