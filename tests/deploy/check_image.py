"""Runs all steps of the image in a fresh virtual environment; started by `make image-check`, since it downloads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.image import ROOT, Container, Image, build, copied, install
from tests.deploy.test_release import LOOK, assert_complete, versions

pytestmark = pytest.mark.timeout(1200)

IMAGE = Image.read()
ONLY_ELSEWHERE = {"async-timeout", "colorama", "tzdata"}
"""Packages of older Python versions and of Windows."""


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Container:
    """The output of the build stage, and the folders of the final stage."""
    root = tmp_path_factory.mktemp("container")
    container = Container(IMAGE, root=root, venv=install(IMAGE, root))
    container.prepare()
    return container


def python(container: Container, code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(container.venv / "bin" / "python"), "-P", "-c", code]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_packages_are_complete_and_come_from_the_environment(container: Container) -> None:
    assert_complete(python(container, LOOK), within=container.venv)
    checked = subprocess.run([container.venv / "bin" / "pip", "check"], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_image_contains_no_torch_and_no_tests(container: Container) -> None:
    held = json.loads(python(container, _FIND.format(("torch", "pytest", "tests", "dashboards"))))
    assert held == []


def test_the_bill_of_materials_names_every_pinned_package_and_its_license(container: Container, tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "requirements" / "sbom.py"), str(container.venv / "bin" / "python")]
    subprocess.run([*script, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": ""})
    text = (tmp_path / "trmon.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {(one["name"].lower(), one["version"]) for one in json.loads(text)["components"]}
    installed = {pair for pair in versions(ROOT / "requirements" / "run.txt") if pair[0] not in ONLY_ELSEWHERE}
    assert installed | {("uplot", "1.6.32"), ("trmon-client", "0.2.0")} <= {
        (n.replace("_", "-"), v) for n, v in components
    }
    licenses = (tmp_path / "licenses.md").read_text()
    assert "| uplot | 1.6.32 | MIT |" in licenses
    assert "unknown" not in licenses


def test_a_package_with_another_hash_is_refused(tmp_path: Path) -> None:
    source = copied(IMAGE, tmp_path)
    locked = source / "requirements" / "run.txt"
    locked.write_text(re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", locked.read_text()))
    done = build(IMAGE, source=source, venv=tmp_path / "venv", check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


_FIND = "import json; from importlib.util import find_spec; print(json.dumps([n for n in {} if find_spec(n)]))"
