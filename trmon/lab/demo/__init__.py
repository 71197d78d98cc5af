"""The demo: an embedded service that monitors a healthy run and two failing ones while they train."""
