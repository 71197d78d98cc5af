"""Every `import verl` imports the plugin: it costs nothing where no run is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomllib

CLIENT = Path(__file__).parents[4] / "client"
HEAVY = {"numpy", "torch", "urllib3", "msgspec", "trmon_client.monitor"}


def test_the_package_announces_the_plugin_to_verl() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert find_spec(project["entry-points"]["verl.plugins"]["trmon"]) is not None


@pytest.mark.parametrize("environment", [{}, {"TRMON_URL": ""}, {"TRMON_URL": "http://h", "TRMON_MODE": "off"}])
def test_without_a_url_nothing_is_imported(environment: dict[str, str]) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRMON_")}
    code = "import sys, trmon_client.integrations.verl.plugin; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    assert not HEAVY & {*done.stdout.split()}
