"""Several processes over one database: leases on runs, change notices, and supervision."""
