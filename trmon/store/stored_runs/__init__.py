"""Runs of a lake or an archive as what-ifs and backtests read them, without a database, in any process."""
