"""Several processes over one database: leases on runs, views of runs, change notices, supervision."""
