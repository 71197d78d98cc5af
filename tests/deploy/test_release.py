"""Workflows, pinned packages, wheels and Python versions: valid, hashed, reproducible, and tested as declared."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from tests.deploy.image import ROOT, Image, assert_of_schema, copied

pytestmark = pytest.mark.timeout(500)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
MAKEFILE = (ROOT / "Makefile").read_text()


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_valid_and_pass_the_audit() -> None:
    assert_of_schema("vendor.github-workflows", *WORKFLOWS)
    files = [str(file) for file in WORKFLOWS]
    audited = run(str(Path(sys.prefix, "bin", "zizmor")), "--offline", "--no-progress", "--persona=pedantic", *files)
    assert audited.returncode == 0, audited.stdout + audited.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit_with_their_version(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_every_target_that_a_workflow_makes_exists(file: Path) -> None:
    made = [name for step in steps(file) for name in re.findall(r"^make ([\w-]+)", step.get("run", ""), re.MULTILINE)]
    assert made
    assert [name for name in made if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)] == []


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = {line for file in WORKFLOWS for line in re.findall(r"uses: (.*)", file.read_text())}
    assert len({line.split("@")[0] for line in used}) == len(used)


def test_only_what_publishes_may_write_and_only_after_the_tests() -> None:
    jobs = yaml.safe_load(RELEASE.read_text())["jobs"]
    writers = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert writers == {"wheels", "pypi", "image"}
    assert {name: jobs[name]["needs"] for name in writers} == {"wheels": "test", "pypi": "wheels", "image": "test"}


def test_the_image_is_built_from_the_dockerfile_over_a_pinned_base() -> None:
    [build] = [step for step in steps(RELEASE) if step.get("id") == "build"]
    assert (ROOT / build["with"]["file"]).exists()
    assert build["with"]["build-args"].startswith("BASE=")


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
