"""The Model Context Protocol server: read-only tools for assistants."""
