"""The workflows are valid, pass the audit of zizmor, and use what the project has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.image import ROOT

pytestmark = pytest.mark.timeout(500)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
MAKEFILE = (ROOT / "Makefile").read_text()


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_valid_and_pass_the_audit() -> None:
    files = [str(file) for file in WORKFLOWS]
    checked = run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    assert checked.returncode == 0, checked.stdout
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
