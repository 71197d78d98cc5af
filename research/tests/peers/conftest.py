"""Collects the tests that need Ray or other monitors only where they are installed (`make research-test`)."""

from __future__ import annotations

from importlib.util import find_spec

PEERS = {"lab": "ray", "rivals": "rlwatch", "language": "trl"}
"""The package that each folder of tests needs."""

collect_ignore = [folder for folder, peer in PEERS.items() if find_spec(peer) is None]
