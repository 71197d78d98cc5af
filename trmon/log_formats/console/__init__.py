"""Console output of trainers: one file for each shape of a line."""
