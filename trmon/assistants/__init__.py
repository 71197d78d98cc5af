"""The Model Context Protocol server: read-only tools and resources for assistants."""
