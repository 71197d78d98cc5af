"""The wheels of both packages build reproducibly, and install in a clean environment."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.deploy.image import Image, copied

pytestmark = pytest.mark.timeout(500)

EPOCH = "1700000000"
LOOK = """
import trmon, trmon_client
from trmon.grafana.push import shipped
from trmon.domain.rules.rule_yaml import builtin_rules
print(trmon.__file__, trmon_client.__file__, len(shipped()), len(builtin_rules()))
"""


def built(folder: Path, *, umask: int) -> dict[str, str]:
    """Build both wheels from a copy of the sources; return the SHA-256 of each file."""
    source, wheels = copied(Image.read(), folder), folder / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    for project in (source / "client", source):
        subprocess.run(
            [*pip, "--wheel-dir", str(wheels), str(project)],
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
            umask=umask,
            check=True,
        )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(wheels.iterdir())}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("first")
    return folder / "wheels", built(folder, umask=0o022)


def test_a_second_build_makes_the_same_files(first: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    _, hashes = first
    assert [name.split("-")[0] for name in hashes] == ["trmon", "trmon_client"]
    assert built(tmp_path / "elsewhere", umask=0o077) == hashes


def test_the_wheels_install_in_a_clean_environment(first: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    wheels, hashes = first
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = ["--quiet", "--no-deps", "--no-index", *(str(wheels / name) for name in hashes)]
    subprocess.run(
        [sys.executable, "-m", "pip", f"--python={venv / 'bin' / 'python'}", "install", *install], check=True
    )
    # The dependencies are those of this environment; its editable packages are not, since their .pth is not read.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    look = [str(venv / "bin" / "python"), "-P", "-c", LOOK]
    looked = subprocess.run(look, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    service, client, n_dashboards, n_rules = looked.split()
    assert Path(service).is_relative_to(venv)
    assert Path(client).is_relative_to(venv)
    assert int(n_dashboards) == 4
    assert int(n_rules) > 20
