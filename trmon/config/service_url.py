"""Where commands look for a service unless they are told."""

DEFAULT_SERVICE_URL = "http://127.0.0.1:8642"
