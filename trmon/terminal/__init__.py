"""Text that commands print of what a service answered or a log holds: runs, diagnoses, policies, tables and charts."""
