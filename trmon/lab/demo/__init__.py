"""The demo: an embedded service that monitors a healthy and a failing run while they train."""
