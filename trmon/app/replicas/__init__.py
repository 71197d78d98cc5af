"""Several processes over one database: whose runs are whose, and how each hears of what the others did."""
