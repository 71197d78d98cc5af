"""Collects the tests of a peer only where it is installed; `make peers` installs and runs them."""

from importlib.util import find_spec

TESTS = {"verl": "test_verl.py", "trl": "trl/*"}

collect_ignore_glob = [tests for peer, tests in TESTS.items() if find_spec(peer) is None]
