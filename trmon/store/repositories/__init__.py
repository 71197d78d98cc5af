"""One repository a noun: the queries and writes of the store."""
