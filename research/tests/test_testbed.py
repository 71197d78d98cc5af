"""The testbed of the studies: its tasks are right, its transformer reads as the rollout engine does, runs repeat."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.lab.grpo.experiments import check_layout, check_reads_alike, drawn_symbols, policy, sampled, small
from tests.lab.recording import RecordingMonitor
from trmon_research.__main__ import app
from trmon_research.testbed import KINDS, StudyTrainer, train_experiment

TRANSFORMER = StudyTrainer.architectures["transformer"]


def test_sums_are_those_of_the_numbers_modulo_a_power_of_ten() -> None:
    for prompt, answer in drawn_symbols(StudyTrainer.tasks["add"]):
        first, second, total = (
            sum((symbol - 1) * 10**place for place, symbol in enumerate(symbols))
            for symbols in (prompt[0::2], prompt[1::2], answer)
        )
        assert total == (first + second) % 10 ** len(answer)
        assert len(prompt) == 2 * len(answer)


def test_closing_brackets_complete_the_beginning() -> None:
    for prompt, answer in drawn_symbols(StudyTrainer.tasks["brackets"]):
        stack = []
        for symbol in prompt + answer:
            if symbol <= KINDS:
                stack.append(symbol)
            else:
                assert stack.pop() == symbol - KINDS
        assert stack == []


@pytest.mark.parametrize("name", ["add", "brackets"])
def test_prompts_end_alike_and_answers_fit_the_limit_with_room(name: str) -> None:
    check_layout(StudyTrainer.tasks[name])


def test_a_transformer_that_reads_one_by_one_gives_the_features_of_reading_at_once() -> None:
    check_reads_alike(policy(TRANSFORMER).trunk)


def test_engines_of_a_transformer_that_agree_differ_by_rounding_alone() -> None:
    _, d = sampled(architecture=TRANSFORMER)
    assert d.abs().max() < 1e-4


@pytest.mark.parametrize(
    ("task", "architecture", "run_name"),
    [
        ("add", "gru", "healthy-add-gru-"),
        ("brackets", "transformer", "healthy-brackets-transformer-"),
    ],
)
def test_equal_configurations_run_equal(task: str, architecture: str, run_name: str) -> None:
    config = small(task=task, architecture=architecture, n_updates=2)
    first, second = (list(train_experiment(config, RecordingMonitor())) for _ in range(2))
    assert first == second
    assert config.run_name == f"{run_name}{config.content_hash}"


def test_a_configuration_in_a_file_is_trained_and_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.json"
    file.write_bytes(msgspec.json.encode(small(task="add", n_updates=2)))
    done = CliRunner().invoke(app, ["train", str(file), "--run", "mine"])
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["step", "0"], ["step", "1"]]
    assert any("mine" in path.parts and path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (b"{}", "Object missing required field `task`"),
        (msgspec.json.encode(small(task="poetry")), "task: 'poetry' must be one of sort, add, brackets"),
        (msgspec.json.encode(small(architecture="cnn")), "architecture: 'cnn' must be one of gru, transformer, moe"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_said(tmp_path: Path, given: bytes, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(given)
    done = CliRunner().invoke(app, ["train", str(file)])
    assert done.exit_code == 1
    assert problem in done.stderr
