"""`trmon preflight` over files and functions: what it prints and its exit status."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from tests.fixtures.command import run_here

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


def test_functions_score_the_tokens_of_the_other_source(folder: Path) -> None:
    assert run(function(folder, "score"), "trainer.npz").exit_code == 0
    assert run("same.npz", function(folder, "score")).exit_code == 0
    failed = run(function(folder, "padded"), "trainer.npz")
    assert (failed.exit_code, "zeros: " in failed.output) == (1, True)


def test_two_functions_score_the_tokens_of_a_file_or_of_the_rollout(folder: Path) -> None:
    both = function(folder, "score"), function(folder, "score")
    assert run(*both, "--tokens", "trainer.npz").exit_code == 0
    assert run(function(folder, "own"), function(folder, "score")).exit_code == 0


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
