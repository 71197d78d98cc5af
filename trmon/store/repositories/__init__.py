"""One repository per noun: the queries and writes of the store."""
