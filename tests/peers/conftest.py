"""Collects the tests of a peer only where it is installed; `make peers` installs and runs them."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PEERS = ("verl", "trl", "openrlhf", "skyrl")

collect_ignore_glob = [f"{peer}/*" for peer in PEERS if find_spec(peer) is None]

# The wheel of verl installs a package of this name too.
sys.modules["tests"] = ModuleType("tests")
sys.modules["tests"].__path__ = [str(Path(__file__).parents[1])]
