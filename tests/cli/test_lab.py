"""`trmon lab`: its subcommands, and clear errors; what they train is tested in tests/lab."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from typer.testing import CliRunner

from tests.lab.grpo.experiments import small
from trmon.cli import app


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the working directory, where spools land."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_configuration_in_a_file_is_trained_and_spooled(in_folder: Path) -> None:
    config = in_folder / "config.json"
    config.write_bytes(msgspec.json.encode(small(n_updates=2)))
    done = CliRunner().invoke(app, ["lab", "train", "--config", str(config), "--run", "mine"])
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["update", "0"], ["update", "1"]]
    assert any("mine" in path.parts and path.is_file() for path in in_folder.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--run: name the run, or give a subcommand: train, sweep"),
        (["train", "--mechanism", "gremlins"], "--mechanism: 'gremlins' must be one of healthy, constant_rate"),
        (["train", "--config", "bad.json"], "--config: bad.json: Object missing required field `task`"),
        (["train", "--config", "absent.json"], "No such file"),
        (["train", "--updates", "1", "--device", "abacus"], "--device: torch cannot compute on 'abacus': "),
    ],
)
def test_what_is_wrong_is_said(in_folder: Path, arguments: list[str], problem: str) -> None:
    (in_folder / "bad.json").write_text("{}")
    done = CliRunner().invoke(app, ["lab", *arguments])
    assert done.exit_code == 1
    assert problem in done.stderr


@pytest.mark.parametrize("package", ["pyarrow", "ray"])
def test_a_sweep_says_which_package_it_lacks(in_folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for known in ("pyarrow", "ray"):
        monkeypatch.setitem(sys.modules, known, ModuleType(known))
    monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(app, ["lab", "sweep", "runs"])
    assert (done.exit_code, list(in_folder.iterdir())) == (1, [])
    assert f"a sweep needs {package}; pip install 'trmon[lab,ray]' brings it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--runs: runs has no run that collapsed; give the folder of a sweep"),
        (["--arm", "prayer"], "--arm: 'prayer' must be one of untouched, placebo, lower_rate"),
        (["--trigger", "hope"], "'hope' is not one of"),
    ],
)
def test_what_is_wrong_with_an_experiment_is_said(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    for known in ("pyarrow", "ray"):
        monkeypatch.setitem(sys.modules, known, ModuleType(known))
    done = CliRunner().invoke(app, ["lab", "intervene", "pairs", "--runs", "runs", *arguments])
    assert (done.exit_code > 0, list(in_folder.iterdir())) == (True, [])
    assert problem in done.stderr
