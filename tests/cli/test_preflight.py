"""`trmon preflight` and `trmon replay` over files, functions and recordings: what they print and their exit status."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import trmon_client as trmon
from tests.fixtures.command import run_here
from tests.fixtures.two_engines import two_engines_batch
from trmon_client.core.recording_format import INDEX_FILE

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 50, (40, 60))
TRAINER = -RNG.exponential(1.0, TOKENS.shape)
MASK = np.arange(60) >= 5


def run(*arguments: object) -> Result:
    return run_here("preflight", *arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the trainer's log-probs, and a module that scores with them."""
    mask = np.broadcast_to(MASK, TOKENS.shape)
    np.savez(tmp_path / "trainer.npz", logprobs=TRAINER, token_ids=TOKENS, mask=mask)
    np.savez(tmp_path / "same.npz", logprobs=TRAINER, token_ids=TOKENS, mask=mask)
    np.savez(tmp_path / "shifted.npz", logprobs=np.roll(TRAINER, 1, axis=1), token_ids=TOKENS, mask=mask)
    (tmp_path / f"engine_{tmp_path.name}.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            trainer = np.load("trainer.npz")
            def score(token_ids, mask):
                assert [len(row) for row in token_ids] == [60] * 40 and mask[0].sum() == 55
                return trainer["logprobs"]
            def padded(token_ids, mask):
                return {"logprobs": np.where(np.arange(60) < 50, trainer["logprobs"], 0.0)}
            def own():
                return {name: trainer[name] for name in trainer}
            def broken(token_ids, mask):
                raise RuntimeError("no GPU")
            def text(token_ids, mask):
                return {"text": "hello"}
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def function(folder: Path, name: str) -> str:
    return f"engine_{folder.name}:{name}"


def test_equal_files_pass(folder: Path) -> None:
    done = run("same.npz", "trainer.npz", "--min-equal", 1)
    assert done.exit_code == 0, done.output
    assert "equal within the limits (2,200 tokens of 40 sequences)" in done.output


def test_a_cause_is_named_with_its_fix_and_fails(folder: Path) -> None:
    done = run("shifted.npz", "trainer.npz")
    assert done.exit_code == 1
    assert "shifted: the rollout's log-probs fit one position too late (in a run: corrupt_logprobs)" in done.output
    assert "do: Align the log-probs" in done.output
    assert "worst tokens" in done.output


def test_the_answer_is_json_too(folder: Path) -> None:
    done = run("shifted.npz", "trainer.npz", "--json", "--worst", 1)
    answer = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (answer["passed"], answer["shift"], answer["padding_rollout_only"]) == (False, 1, 0)
    assert answer["causes"][0]["cause"] == "shifted"
    assert answer["causes"][0]["finding"] == "corrupt_logprobs"
    assert answer["causes"][0]["remedy"]["first"]
    assert len(answer["worst"]) == 1


def test_functions_score_the_tokens_of_the_other_source_or_of_a_file(folder: Path) -> None:
    score = function(folder, "score")
    for sources in (
        (score, "trainer.npz"),
        ("same.npz", score),
        (score, score, "--tokens", "trainer.npz"),
        (function(folder, "own"), score),
    ):
        assert run(*sources).exit_code == 0, sources
    failed = run(function(folder, "padded"), "trainer.npz")
    assert (failed.exit_code, "zeros: " in failed.output) == (1, True)


def test_limits_are_options(folder: Path) -> None:
    rough = folder / "rough.npz"
    np.savez(rough, logprobs=TRAINER - 0.003 * (TOKENS % 2))
    assert run(rough, "trainer.npz").exit_code == 0
    strict = run(rough, "trainer.npz", "--max-abs-d", 0.001, "--max-tv", 0.001)
    assert strict.exit_code == 1
    assert "max abs d is 0.003 (limit 0.001)" in strict.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("missing.npz", "trainer.npz"), "missing.npz: cannot be read"),
        (("same.npz",), "needs rollout_logprobs and old_logprobs"),
        (("same.npz", "trainer.csv"), "must be a file (.npz, .jsonl) or module:function"),
        (("no_module_of_this_name:f", "trainer.npz"), "cannot be imported: ModuleNotFoundError"),
        (("json:no_such_function", "trainer.npz"), "cannot be imported: AttributeError"),
        (("json:decoder", "trainer.npz"), "is not a function"),
        (("json:loads",), "TRAINER: is needed"),
    ],
)
def test_bad_input_exits_with_2_and_names_the_source(folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("name", "reason"), [("broken", "RuntimeError: no GPU"), ("text", "must return log-probs")])
def test_a_function_that_fails_is_bad_input(folder: Path, name: str, reason: str) -> None:
    done = run(function(folder, name), "trainer.npz")
    assert (done.exit_code, reason in done.stderr) == (2, True)


ILL_FROM = 3


def run_replay(*arguments: object) -> Result:
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
    printed = run_replay(recordings, "--worst", 3)
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
    assert [row[0] for row in rows_of(run_replay(recordings, "--step", 4, "--worst", 0).output)] == ["4"]


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of a printed table, row by row."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_a_decision_that_is_not_reproduced_fails(recordings: Path) -> None:
    [file] = recordings.rglob("step000000004*.npz")
    with np.load(file) as arrays:
        changed = dict(arrays) | {"accepted": ~arrays["accepted"]}
    np.savez(file, **changed)
    done = run_replay(recordings)
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
    done = run_replay(recordings)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    done = run_replay(tmp_path)
    assert (done.exit_code, "has no recording" in done.stderr) == (2, True)
