"""The worker of an embedded database in a process of its own: so the door and the watch use a core each."""
