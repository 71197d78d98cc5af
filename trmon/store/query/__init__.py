"""SQL over everything that trmon stores: the database and the lake together, with DuckDB."""
