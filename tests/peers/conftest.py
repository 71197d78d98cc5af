"""Collects the tests of a peer only if it is installed; `make peers` installs and runs them."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") else ["test_verl.py"]
