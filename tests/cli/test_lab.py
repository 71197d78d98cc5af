"""`trmon lab`: a configuration in a file, and clear errors; what they train is tested in tests/lab."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.fixtures.command import run_here
from tests.lab.grpo.experiments import small


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the working directory, where spools land."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_configuration_in_a_file_is_trained_and_spooled(in_folder: Path) -> None:
    config = in_folder / "config.json"
    config.write_bytes(msgspec.json.encode(small(n_updates=2)))
    done = run_here("lab", "--config", config, "--run", "mine")
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["step", "0"], ["step", "1"]]
    assert any("mine" in path.parts and path.is_file() for path in in_folder.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--inject", "nan", "--config", "good.json"], "--inject: and --config were both given"),
        (["--config", "bad.json"], "--config: bad.json: Object missing required field `task`"),
        (["--config", "absent.json"], "No such file"),
        (["--config", "good.json", "--device", "abacus"], "--device: torch cannot compute on 'abacus': "),
    ],
)
def test_what_is_wrong_is_said(in_folder: Path, arguments: list[str], problem: str) -> None:
    (in_folder / "bad.json").write_text("{}")
    (in_folder / "good.json").write_bytes(msgspec.json.encode(small(n_updates=1)))
    done = run_here("lab", *arguments)
    assert done.exit_code == 1
    assert problem in done.stderr
