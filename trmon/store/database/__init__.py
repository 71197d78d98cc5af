"""SQLite and PostgreSQL: how each is reached, examined, copied and put back."""
