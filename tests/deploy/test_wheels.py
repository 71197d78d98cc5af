"""The wheels of both packages build reproducibly, and install in a clean environment."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.deploy.image import ROOT, Image, copied
from tests.deploy.test_workflows import RELEASE, steps

pytestmark = pytest.mark.timeout(500)

EPOCH = "1700000000"
LOOK = """
import trmon, trmon_client
from trmon.grafana.push import shipped
from trmon.domain.rules.rule_yaml import builtin_rules
print(trmon.__file__, trmon_client.__file__, len(shipped()), len(builtin_rules().rules))
"""


def built(wheels: Path, command: list[str], *, umask: int) -> dict[str, str]:
    """Build both wheels into a folder; return the SHA-256 of each file."""
    subprocess.run(command, cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, umask=umask, check=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(wheels.iterdir())}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of the wheels that are built from the sources of the image, and their hashes."""
    folder = tmp_path_factory.mktemp("first")
    source, wheels = copied(Image.read(), folder), folder / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    projects = [str(source / "client"), str(source)]
    return wheels, built(wheels, [*pip, "--wheel-dir", str(wheels), *projects], umask=0o022)


def test_make_wheels_makes_the_same_files_which_are_those_of_the_release(
    first: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, hashes = first
    assert [name.split("-")[0] for name in hashes] == ["trmon", "trmon_client"]
    assert built(tmp_path, ["make", "wheels", f"DIST={tmp_path}", f"VENV={sys.prefix}"], umask=0o077) == hashes
    [expected] = [step["run"] for step in steps(RELEASE) if "The tag is the version" in step.get("name", "")]
    version = next(iter(hashes)).split("-")[1]
    assert [name for name in hashes if name.replace(version, "${TAG#v}") not in expected] == []


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
    assert_complete(looked, within=venv)


def assert_complete(looked: str, *, within: Path) -> None:
    """Check what `LOOK` prints: where the packages are, and what they bring."""
    service, client, n_dashboards, n_rules = looked.split()
    assert Path(service).is_relative_to(within)
    assert Path(client).is_relative_to(within)
    assert int(n_dashboards) == 4
    assert int(n_rules) > 20
