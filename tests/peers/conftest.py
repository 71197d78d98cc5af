"""The peers are collected where they are installed: `make peers`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") else ["test_verl.py"]
