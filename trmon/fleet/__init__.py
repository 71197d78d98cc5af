"""What several processes over one database share: leases on runs, views of runs, change notices, supervision."""
