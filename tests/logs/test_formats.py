"""Formats of log files: which one a file has, and the rows in it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trmon.domain.analysis.logged_steps import LogDefect, LoggedStep, logged_steps
from trmon.domain.errors import InvalidInput
from trmon.logs import LOG_FORMATS, LogSource, format_of, read_log


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [dict(row) for row in read_log(path)]


STATE = json.dumps(
    {"epoch": 1.0, "global_step": 2, "log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]}
)


def test_the_state_of_hugging_faces_trainer_has_a_row_for_each_log(tmp_path: Path) -> None:
    path = written(tmp_path, "trainer_state.json", STATE)
    assert format_of(path).name == "trainer_state"
    assert rows_of(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]


def test_a_folder_of_checkpoints_is_read_from_its_newest(tmp_path: Path) -> None:
    old = json.dumps({"log_history": [{"step": 1, "loss": 9.0}]})
    written(tmp_path, "checkpoint-90/trainer_state.json", old)
    written(tmp_path, "checkpoint-100/trainer_state.json", STATE)
    assert rows_of(tmp_path)[-1]["loss"] == 0.4
    written(tmp_path, "trainer_state.json", old)
    assert rows_of(tmp_path)[-1]["loss"] == 9.0


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has no known format; known are: trainer_state\.json"):
        rows_of(tmp_path)


def test_a_state_keeps_nan_as_hugging_face_writes_it(tmp_path: Path) -> None:
    path = written(tmp_path, "trainer_state.json", '{"log_history": [{"step": 1, "grad_norm": NaN, "loss": Infinity}]}')
    assert math.isnan(rows_of(path)[0]["grad_norm"])
    assert math.isinf(rows_of(path)[0]["loss"])


def test_lines_of_verls_file_logger_keep_their_names(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "data": {"actor/lr": 1e-6, "critic/score/mean": 0.5}}) for step in (1, 2)]
    path = written(tmp_path, "grpo.jsonl", "\n".join(lines) + "\n")
    assert format_of(path).name == "jsonl"
    assert rows_of(path)[1] == {"step": 2, "actor/lr": 1e-6, "critic/score/mean": 0.5}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.jsonl", '{"step": 1, "loss": "np.float64(0.2)", "kl": 1e400}\n{"step": 1, "loss": 0.3, "kl": 1e400}\n'),
        ("log.json", '[{"step": 1, "loss": "np.float64(0.2)", "kl": 1e400}, {"step": 1, "loss": 0.3, "kl": 1e400}]'),
        ("log.csv", "step,loss,kl\n1,np.float64(0.2),1e400\n1,0.3,1e400\n"),
        (
            "trainer_state.json",
            '{"log_history": [{"step": 1, "loss": "np.float64(0.2)", "kl": 1e400},'
            ' {"step": 1, "loss": 0.3, "kl": 1e400}]}',
        ),
        ("verl.log", "step:1 - loss:np.float64(0.2) - kl:1e400\nstep:1 - loss:0.3 - kl:1e400\n"),
    ],
)
def test_numbers_as_numpy_prints_them_too_large_ones_and_steps_that_come_twice(
    name: str, text: str, tmp_path: Path
) -> None:
    path = written(tmp_path, name, text)
    items = list(logged_steps(format_of(path).read(path), LogSource.of(path).survey))
    steps = [item for item in items if isinstance(item, LoggedStep)]
    assert [(step.attempt, step.step, step.scalars["loss"], step.scalars["reference_kl"]) for step in steps] == [
        (0, 1, 0.2, math.inf),
        (0, 1, 0.3, math.inf),
    ]
    defects = [item.reason for item in items if isinstance(item, LogDefect)]
    assert defects == ["kl: '1e400' is too large for a float64; kept as inf"] * 2


def test_nested_metrics_are_joined_with_a_slash(tmp_path: Path) -> None:
    path = written(tmp_path, "log.jsonl", '{"step": 1, "actor": {"lr": 0.1, "clip": {"low": 0.2}}}\n')
    assert rows_of(path) == [{"step": 1, "actor/lr": 0.1, "actor/clip/low": 0.2}]


def test_half_a_line_at_the_end_of_a_killed_run_is_left_out_and_one_before_it_refused(tmp_path: Path) -> None:
    whole = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'
    assert len(rows_of(written(tmp_path, "killed.jsonl", whole + '{"step": 3, "lo'))) == 2
    with pytest.raises(InvalidInput, match=r"broken\.jsonl:3"):
        rows_of(written(tmp_path, "broken.jsonl", whole + '{"step": 3, "lo\n' + whole))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"step": 4, "loss": 0.5}', [{"step": 4, "loss": 0.5}]),
        ('[{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]', [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]),
        ('{"step": [1, 2], "loss": [0.5, 0.4]}', [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]),
        ('{\n  "step": 4,\n  "loss": 0.5\n}', [{"step": 4, "loss": 0.5}]),
    ],
    ids=["an object", "a list of rows", "columns", "an indented object"],
)
def test_a_json_document_is_a_row_or_several(text: str, rows: list[dict[str, float]], tmp_path: Path) -> None:
    path = written(tmp_path, "log.json", text)
    assert format_of(path).name == "json"
    assert rows_of(path) == rows


def test_a_csv_has_a_row_for_each_line_and_leaves_out_empty_cells(tmp_path: Path) -> None:
    path = written(tmp_path, "log.csv", "step,reward,kl\n1,0.5,\n2,0.6,0.1\n")
    assert format_of(path).name == "csv"
    assert rows_of(path) == [{"step": "1", "reward": "0.5"}, {"step": "2", "reward": "0.6", "kl": "0.1"}]


def test_an_export_of_wandbs_page_has_the_metrics_of_its_run(tmp_path: Path) -> None:
    header = '"Step","qwen-1 - train/reward","qwen-1 - train/reward__MIN","qwen-1 - train/reward__MAX"'
    path = written(tmp_path, "export.csv", f'{header}\n"10","0.5","0.5","0.5"\n')
    assert rows_of(path) == [{"step": "10", "train/reward": "0.5"}]


def test_an_export_of_several_runs_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "export.csv", "Step,a - reward,b - reward\n1,0.5,0.6\n")
    with pytest.raises(InvalidInput, match="holds 2 runs"):
        rows_of(path)


def test_a_line_of_a_csv_with_too_many_values_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "log.csv", "step,reward\n1,0.5\n2,0.5,0.7\n")
    with pytest.raises(InvalidInput, match=r"log\.csv:3"):
        rows_of(path)


def test_a_csv_with_a_cell_that_is_too_large_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "log.csv", "step,reward\n1,0.5\n2," + "x" * 200_000 + "\n")
    with pytest.raises(InvalidInput, match=r"log\.csv:3: is no CSV"):
        rows_of(path)


@pytest.mark.parametrize(
    "text",
    [
        "step,reward\n\n1,0.5\n",
        "1,2\n3,4\n",
        "INFO 10:00:00, loading weights\nINFO 10:00:01, loading weights\n",
        " 1%|#| 1/9 [00:12<20:01, 1.2s/it]{'loss': 0.1, 'reward': 0.5}\n" * 2,
    ],
    ids=["an empty row", "no header", "messages", "dictionaries after a progress bar"],
)
def test_text_with_commas_is_not_always_a_csv(text: str, tmp_path: Path) -> None:
    assert format_of(written(tmp_path, "log.txt", text)).name == "console"


def test_objects_within_objects_are_left_out_beyond_a_depth(tmp_path: Path) -> None:
    deep = '{"a": ' * 50 + "1" + "}" * 50
    path = written(tmp_path, "log.jsonl", f'{{"step": 1, "deep": {deep}}}\n')
    assert rows_of(path) == [{"step": 1}]


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        format_of(tmp_path / "none.json")
    binary = tmp_path / "events.bin"
    binary.write_bytes(b"\x00\x01\x02")
    with pytest.raises(InvalidInput, match="known are"):
        format_of(binary)
    with pytest.raises(InvalidInput, match="known are"):
        format_of(written(tmp_path, "empty.json", ""))


def test_every_format_has_a_name_of_its_own() -> None:
    assert len({known.name for known in LOG_FORMATS}) == len(LOG_FORMATS)
