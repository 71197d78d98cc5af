"""`trmon replay` over recordings that the client wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import trmon_client as trmon
from tests.fixtures.command import run_here
from tests.fixtures.two_engines import two_engines_batch
from trmon_client.core.recording_format import INDEX_FILE

ILL_FROM = 3


def run(*arguments: object) -> Result:
    return run_here("replay", *arguments)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Return the folder of a run of five steps, ill from the third on, in a recording of one chunk a step."""
    with trmon.init(
        project="math", run="r", policy="trm_max", spool_dir=tmp_path / "spool", record_dir=tmp_path / "recordings"
    ) as monitor:
        for step in range(5):
            ids = np.arange(16 * 24).reshape(16, 24)
            monitor.log_batch(**two_engines_batch(step, ill_from=ILL_FROM), token_ids=ids)
    return tmp_path / "recordings"


def test_updates_and_their_worst_tokens_are_printed(recordings: Path) -> None:
    printed = run(recordings, "--worst", 3)
    assert (printed.exit_code, "decided otherwise" in printed.output) == (0, False)
    updates, worst = (rows_of(part) for part in printed.output.split("worst tokens"))
    assert [row[0] for row in updates] == ["0", "1", "2", "3", "4"]
    assert [row[3] != "0" for row in updates] == [False, False, False, True, True]
    assert [row[4] for row in updates] == ["mismatch"] * 5
    assert float(updates[0][6]) < 1e-5 < float(updates[4][6])
    assert len(worst) == 3
    for _, step, _, _, sequence, position, token_id, rollout, trainer, d, _ in worst:
        assert int(step) >= ILL_FROM
        assert int(token_id) == int(sequence) * 24 + int(position)
        assert float(d) == pytest.approx(float(trainer) - float(rollout), abs=2e-4)
    assert [row[0] for row in rows_of(run(recordings, "--step", 4, "--worst", 0).output)] == ["4"]


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of a printed table, row by row."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_a_decision_that_is_not_reproduced_fails(recordings: Path) -> None:
    [file] = recordings.rglob("step000000004*.npz")
    with np.load(file) as arrays:
        changed = dict(arrays) | {"accepted": ~arrays["accepted"]}
    np.savez(file, **changed)
    done = run(recordings)
    assert (done.exit_code, "16 sequences were decided otherwise" in done.output) == (1, True)


def test_preflight_reads_a_recorded_call(recordings: Path) -> None:
    healthy, *_, ill = sorted(recordings.rglob("*.npz"))
    assert [run_here("preflight", file).exit_code for file in (healthy, ill)] == [0, 1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"format": 2}, "has format 2; this version reads 1"),
        ({"run": 7}, "cannot be read"),
        ({"calls": [{"file": "../../x.npz"}]}, "names a file outside its folder"),
        ({"calls": [{"file": "missing.npz"}]}, "missing.npz: cannot be read"),
        ({"calls": [{"policy": {"name": "?"}}]}, "step000000000"),
    ],
)
def test_a_damaged_recording_is_refused_by_name(recordings: Path, damage: dict, reason: str) -> None:
    [index] = recordings.rglob(INDEX_FILE)
    document = json.loads(index.read_text())
    calls = [{**document["calls"][0], **call} for call in damage.get("calls", [])]
    index.write_text(json.dumps({**document, **damage, **({"calls": calls} if calls else {})}))
    done = run(recordings)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.exit_code, "has no recording" in done.stderr) == (2, True)
