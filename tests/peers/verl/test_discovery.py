"""`import verl` finds the plugin in the installed client."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REPORT = """
import sys
import verl
from verl.utils.tracking import Tracking
print("trmon_client.monitor" in sys.modules, hasattr(Tracking.log, "__wrapped__"))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("url", "found"), [("", "False False"), ("http://127.0.0.1:9", "True True")])
def test_verl_loads_the_plugin_which_is_inert_without_a_url(url: str, found: str) -> None:
    environment = {**os.environ, "TRMON_URL": url}
    done = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == found
