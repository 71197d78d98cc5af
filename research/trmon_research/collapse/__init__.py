"""Runs of the lab, some of which collapse: the files of a sweep in research/data/runs, and their manifest."""
