"""Other monitors from PyPI on the stored runs of the lab, at their defaults, beside trmon's rules."""
