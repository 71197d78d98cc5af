"""Other monitors from PyPI on the stored runs of the lab, at their defaults, and trmon's rules."""
