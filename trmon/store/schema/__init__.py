"""The tables and the types of their columns."""
