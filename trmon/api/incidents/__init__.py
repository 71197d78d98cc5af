"""Incidents, as responses about runs carry them."""
