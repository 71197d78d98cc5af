"""SQLite and PostgreSQL: connections, statements and error messages of each."""
