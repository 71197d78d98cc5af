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


def test_the_answer_is_json_too(recordings: Path) -> None:
    answer = json.loads(run(recordings, "--json", "--worst", 3).stdout)
    assert [update["step"] for update in answer["updates"]] == [0, 1, 2, 3, 4]
    assert [update["n_rejected"] > 0 for update in answer["updates"]] == [False, False, False, True, True]
    assert answer["updates"][0]["signals"]["mismatch_kl_k3"] < 1e-5 < answer["updates"][4]["signals"]["mismatch_kl_k3"]
    first = answer["worst"][0]
    assert first["step"] >= ILL_FROM
    [last] = json.loads(run(recordings, "--step", 4, "--json").stdout)["updates"]
    assert last["step"] == 4
    printed = run(recordings)
    assert (printed.exit_code, "worst tokens" in printed.output, "decided otherwise" in printed.output) == (
        0,
        True,
        False,
    )
    assert first["token_id"] == first["sequence"] * 24 + first["position"]
    assert first["d"] == pytest.approx(first["trainer_logprob"] - first["rollout_logprob"])


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
