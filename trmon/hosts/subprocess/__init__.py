"""The embedded worker as a process of its own, so that the API and the runner use a core each."""
