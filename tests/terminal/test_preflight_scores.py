"""Files of scores: what .npz and .jsonl hold, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trmon.domain.errors import InvalidInput
from trmon.terminal.preflight_scores import ScoreFile


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_line_is_one_sequence_and_null_is_missing(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        {"logprobs": [None, -1.0], "token_ids": [3, 4], "mask": [0, 1]},
        {"logprobs": [-2.0], "token_ids": [5], "mask": [1]},
    )
    found = ScoreFile(path).rollout()
    assert np.isnan(found.logprobs[0][0])
    assert [row.tolist() for row in found.token_ids or ()] == [[3, 4], [5]]
    assert [row.tolist() for row in found.mask or ()] == [[False, True], [True]]


def test_infinities_are_read_as_the_api_writes_them(tmp_path: Path) -> None:
    [row] = ScoreFile(write_lines(tmp_path / "a.jsonl", {"logprobs": ["-inf", -1.5]})).rollout().logprobs
    assert row.tolist() == [-np.inf, -1.5]


def test_one_file_holds_both_engines_under_the_names_of_log_batch(tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    np.savez(path, rollout_logprobs=[[-1.0]], old_logprobs=[[-2.0]], logprobs=[[-3.0]], mask=[[1]])
    file = ScoreFile(path)
    assert file.has_both_engines
    assert (file.rollout().logprobs[0][0], file.trainer().logprobs[0][0]) == (-1.0, -2.0)
    assert file.trainer().mask is not None


def test_padding_is_cut_by_the_attention_mask(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, logprobs=[[0.0, -1, -2, 0]], token_ids=[[0, 7, 8, 0]], attention_mask=[[0, 1, 1, 0]])
    file = ScoreFile(path)
    tokens = file.tokens()
    assert tokens is not None
    assert tokens.token_ids[0].tolist() == [7, 8]
    assert file.trainer().logprobs[0].tolist() == [-1.0, -2.0]


def test_a_file_without_token_ids_has_nothing_to_score(tmp_path: Path) -> None:
    assert ScoreFile(write_lines(tmp_path / "a.jsonl", {"logprobs": [-1.0]})).tokens() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one JSON object per sequence"),
        ("[1]\n", "one JSON object per sequence"),
        ("{\n", "cannot be read"),
        ('{"logprobs": [1]}\n{"mask": [1]}\n', "sequence 2 has other fields"),
        ('{"mask": [1]}\n', "has no rollout_logprobs or logprobs; it has mask"),
        ('{"logprobs": [-1], "attention_mask": [1, 1]}\n', "attention_mask does not fit"),
    ],
)
def test_lines_that_are_no_scores_are_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        ScoreFile(path).rollout()
