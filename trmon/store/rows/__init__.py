"""How domain values lie in rows: encode, decode, write."""
