"""The web page: its modules and styles, served as they are written."""
