"""The one writer of a process: operations, groups, commits."""
