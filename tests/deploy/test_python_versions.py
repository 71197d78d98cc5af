"""The packages keep to the Python versions that they declare, and the workflow tests each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from tests.deploy.image import ROOT
from tests.deploy.test_workflows import run

pytestmark = pytest.mark.timeout(500)

WORKFLOW = ROOT / ".github" / "workflows" / "test.yaml"


def tool(name: str) -> str:
    return str(Path(sys.prefix, "bin", name))


def vermin(target: str, *sources: str) -> subprocess.CompletedProcess[str]:
    # A path's `replace` looks to it like copy.replace of Python 3.13.
    options = ("--quiet", "--no-tips", "--violations", "--exclude", "copy.replace", f"--target={target}-")
    return run(tool("vermin"), *options, *sources)


def declared(project: str) -> str:
    table = tomllib.loads((ROOT / project).read_text())
    return str(table["project"]["requires-python"]).removeprefix(">=")


@pytest.mark.parametrize(
    ("project", "sources"),
    [("client/pyproject.toml", "client/trmon_client"), ("pyproject.toml", "trmon")],
)
def test_code_needs_no_newer_python_than_declared(project: str, sources: str) -> None:
    if declared(project) == f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip("the tests run on that version")
    found = vermin(declared(project), sources)
    assert found.returncode == 0, found.stdout


def test_code_that_needs_a_newer_python_is_found(tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text("import tomllib\n")
    assert vermin("3.10", str(tmp_path)).returncode == 1
    assert vermin("3.11", str(tmp_path)).returncode == 0


def test_the_workflow_tests_every_version_from_the_declared_one() -> None:
    versions = yaml.safe_load(WORKFLOW.read_text())["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"]
    assert versions[0] == declared("pyproject.toml")


def test_nothing_warns_when_the_packages_are_imported() -> None:
    code = (
        "import importlib, pkgutil, trmon, trmon_client\n"
        "found = [m.name for p in (trmon, trmon_client) for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')]\n"
        "for name in found:\n"
        "    if not name.endswith('__main__') and '.migrations.' not in name:\n"
        "        try:\n"
        "            importlib.import_module(name)\n"
        "        except ModuleNotFoundError as error:\n"
        "            assert error.name in ('lightning', 'transformers'), error\n"  # what their callbacks derive from
        "print(len(found))"
    )
    done = run(sys.executable, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 400


def test_the_service_starts_with_warnings_as_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "trmon", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert line.startswith("trmon_url="), err
    assert "Warning" not in err
