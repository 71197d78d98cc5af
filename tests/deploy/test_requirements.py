"""Every pinned package has the hashes of its files, and every installation requires them."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.deploy.image import ROOT

REQUIREMENTS = ROOT / "requirements"
LOCKED = sorted(path for path in REQUIREMENTS.glob("*.txt") if path.name != "torch.txt")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(path: Path) -> list[str]:
    """Return the requirements of a file, each on one line with its hashes."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def versions(path: Path) -> set[tuple[str, str]]:
    split = (pin.split()[0].partition("==") for pin in pins(path))
    return {(name, version) for name, _, version in split}


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_package_has_a_version_and_hashes(path: Path) -> None:
    assert pins(path)
    assert [pin for pin in pins(path) if not HASH.search(pin)] == []
    assert [name for name, version in versions(path) if not version] == []


def test_the_packages_that_are_installed_together_have_one_version() -> None:
    run, test = (versions(REQUIREMENTS / f"{name}.txt") for name in ("run", "test"))
    both = {name for name, _ in run} & {name for name, _ in test}
    assert both
    assert {pair for pair in run if pair[0] in both} == {pair for pair in test if pair[0] in both}


@pytest.mark.parametrize("script", ["Makefile", "deploy/install.sh"])
def test_every_installation_requires_the_hashes(script: str) -> None:
    text = (ROOT / script).read_text()
    installing = [line for line in text.splitlines() if re.search(r" -r \S*requirements/(?!torch\.txt)", line)]
    assert installing
    assert [line for line in installing if not re.search(r"--require-hashes|\$\(LOCKED\)", line)] == []


def test_the_dependencies_of_pytorch_are_pinned() -> None:
    needed = {re.split(r"[^\w.-]", text)[0] for text in requires("torch") or () if "extra ==" not in text}
    pinned = {name for name, _ in versions(REQUIREMENTS / "torch-dependencies.txt")}
    assert needed
    assert needed <= pinned
