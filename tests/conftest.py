"""What holds for every test: those that need a server that this machine lacks say so and do not run."""

from __future__ import annotations

import shutil

import pytest

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
"""Debian's package of each binary."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip a test marked `server("binary", ...)` whose binary is not installed; `make test-deps` installs them."""
    for item in items:
        for marker in item.iter_markers("server"):
            missing = [binary for binary in marker.args if shutil.which(binary) is None]
            if missing:
                packages = " ".join(sorted({PACKAGES[binary] for binary in missing}))
                item.add_marker(pytest.mark.skip(f"no {', '.join(missing)} here; as root: apt-get install {packages}"))
