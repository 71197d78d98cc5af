"""Formats of log files, notebooks among them: which one a file has, and the rows in it."""

from __future__ import annotations

import gzip
import json
import lzma
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.logs.test_console import BAR, PLAIN_VERL, TRL
from trmon.domain.analysis.logged_steps import LogDefect, LoggedStep, LogRow, logged_steps
from trmon.domain.errors import InvalidInput
from trmon.logs import LOG_FORMATS, LogSource, format_of


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a log. Errors: InvalidInput for a defect that is not its cut-off end."""
    items = list(format_of(path).read(path))
    for item in items:
        if isinstance(item, LogDefect) and not item.is_end:
            raise InvalidInput(f"{path}:{item.line}" if item.line else str(path), item.reason)
    return [dict(item.values) for item in items if isinstance(item, LogRow)]


STATE = json.dumps(
    {"epoch": 1.0, "global_step": 2, "log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]}
)


TWO_ROWS = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]
VERL = '{"step": 1, "data": {"actor/lr": 1e-6, "critic/score/mean": 0.5}}\n'
DEEP = '{"a": ' * 50 + "1" + "}" * 50
EXPORT = '"Step","qwen-1 - train/reward","qwen-1 - train/reward__MIN"\n"10","0.5","0.5"\n'
FILES: dict[str, tuple[str, str, str, list[dict[str, Any]]]] = {
    "the state of Hugging Face's trainer": ("trainer_state.json", STATE, "trainer_state", TWO_ROWS),
    "verl's file logger": ("grpo.jsonl", VERL, "jsonl", [{"step": 1, "actor/lr": 1e-6, "critic/score/mean": 0.5}]),
    "nested metrics, joined with a slash": (
        *("log.jsonl", '{"step": 1, "actor": {"lr": 0.1, "clip": {"low": 0.2}}}\n', "jsonl"),
        [{"step": 1, "actor/lr": 0.1, "actor/clip/low": 0.2}],
    ),
    "objects beyond a depth, left out": ("log.jsonl", f'{{"step": 1, "deep": {DEEP}}}\n', "jsonl", [{"step": 1}]),
    "a CSV, without empty cells": (
        *("log.csv", "step,reward,kl\n1,0.5,\n2,0.6,0.1\n", "csv"),
        [{"step": "1", "reward": "0.5"}, {"step": "2", "reward": "0.6", "kl": "0.1"}],
    ),
    "an export of wandb's page": ("export.csv", EXPORT, "csv", [{"step": "10", "train/reward": "0.5"}]),
}


@pytest.mark.parametrize(("name", "text", "format_name", "rows"), FILES.values(), ids=FILES)
def test_a_file_has_the_rows_of_its_format(
    name: str, text: str, format_name: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = written(tmp_path, name, text)
    assert format_of(path).name == format_name
    assert rows_of(path) == rows


def test_a_folder_of_checkpoints_is_read_from_its_newest(tmp_path: Path) -> None:
    old = json.dumps({"log_history": [{"step": 1, "loss": 9.0}]})
    written(tmp_path, "checkpoint-90/trainer_state.json", old)
    written(tmp_path, "checkpoint-100/trainer_state.json", STATE)
    assert rows_of(tmp_path)[-1]["loss"] == 0.4
    written(tmp_path, "trainer_state.json", old)
    assert rows_of(tmp_path)[-1]["loss"] == 9.0


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is a folder without a log.*; known are: a Jupyter notebook"):
        rows_of(tmp_path)


def test_a_state_keeps_nan_as_hugging_face_writes_it(tmp_path: Path) -> None:
    path = written(tmp_path, "trainer_state.json", '{"log_history": [{"step": 1, "grad_norm": NaN, "loss": Infinity}]}')
    assert math.isnan(rows_of(path)[0]["grad_norm"])
    assert math.isinf(rows_of(path)[0]["loss"])


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


def test_half_a_line_at_the_end_of_a_killed_run_is_left_out_and_one_before_it_refused(tmp_path: Path) -> None:
    whole = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'
    assert len(rows_of(written(tmp_path, "killed.jsonl", whole + '{"step": 3, "lo'))) == 2
    with pytest.raises(InvalidInput, match=r"broken\.jsonl:3"):
        rows_of(written(tmp_path, "broken.jsonl", whole + '{"step": 3, "lo\n' + whole))


ROWS = '[{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]'
COLUMNS = '{"step": [1, 2], "loss": [0.5, 0.4]}'
DOCUMENTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "an object": ('{"step": 1, "loss": 0.5}', TWO_ROWS[:1]),
    "a list of rows": (ROWS, TWO_ROWS),
    "columns": (COLUMNS, TWO_ROWS),
    "an indented object": ('{\n  "step": 1,\n  "loss": 0.5\n}', TWO_ROWS[:1]),
    "a list in an object": (f'{{"n": 2, "steps": {ROWS}}}', TWO_ROWS),
    "a list two levels down": (f'{{"run": {{"log": {ROWS}}}, "tags": [{{"a": "b"}}]}}', TWO_ROWS),
    "columns in an object": (f'{{"name": "x", "history": {COLUMNS}}}', TWO_ROWS),
    "indented objects, the last cut off": (
        '{"step": 1,\n "loss": 0.5}\n{"step": 2,\n "loss": 0.4}\n{"step": 3, "lo',
        TWO_ROWS,
    ),
    "lines below a header": ('[["step", "loss"], [1, 0.5], [2, null]]', [{"step": "1", "loss": "0.5"}, {"step": "2"}]),
    "one metric each": (
        '[{"metric": "loss", "value": 0.5, "step": 1}, {"metric": "loss", "value": 0.4, "step": 2},'
        ' {"metric": "kl", "value": 0.1, "step": 1}]',
        [{"step": 1, "loss": 0.5, "kl": 0.1}, {"step": 2, "loss": 0.4}],
    ),
}


@pytest.mark.parametrize(("text", "rows"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_json_document_is_a_row_or_several(text: str, rows: list[dict[str, float]], tmp_path: Path) -> None:
    path = written(tmp_path, "log.json", text)
    assert format_of(path).name == "json"
    assert rows_of(path) == rows


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


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        format_of(tmp_path / "none.json")


def test_charts_of_tensorboards_page_are_named_after_their_file(tmp_path: Path) -> None:
    rows = [{"_timestamp": "1700000000.5", "step": "3", "train_reward": "0.5"}]
    name = "run-grpo-tag-train_reward"
    assert rows_of(written(tmp_path, f"{name}.csv", "Wall time,Step,Value\n1700000000.5,3,0.5\n")) == rows
    assert rows_of(written(tmp_path, f"{name}.json", "[[1700000000.5, 3, 0.5]]")) == rows
    assert list(rows_of(written(tmp_path, "kl.csv", "Wall time,Step,Value\n1.5,3,0.5\n"))[0]) == [
        "_timestamp",
        "step",
        "kl",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.tsv", "Step\treward\tkl\n1\t0.5\t\n2\tNone\tnan\n"),
        ("log.txt", "step;reward;kl\n1;0.5;\n2;-;nan\n"),
        (
            "log.md",
            "# Run\n\ntext | more\n\n| Step | reward | kl |\n|---:|:--|--|\n| 1 | **0.5** | |\n| 2 | - | nan |\n",
        ),
        ("log.txt", "Step | reward | kl\n-- | -- | --\n1 | 0.5 |\n2 | N/A | nan\n\nThe end.\n"),
        (
            "log.html",
            "<html><table><tr><th>Model<th>Size<tr><td>qwen<td>8</table>"
            "<table><thead><tr><th>Step</th><th>reward</th><th>kl</th></tr></thead><tbody>"
            "<tr><td>1</td><td>0.5</td><td></td></tr><tr><td>2</td><td>No Log</td><td>nan</td></tr></table></html>",
        ),
        (
            "log.csv",
            "metric,value,step\nreward,0.5,1\nreward,,2\nkl,nan,2\n",
        ),
    ],
    ids=["TSV", "semicolons", "Markdown", "Markdown without outer pipes", "HTML", "one metric a line"],
)
def test_a_table_has_a_row_for_each_line_and_leaves_out_what_was_not_logged(
    name: str, text: str, tmp_path: Path
) -> None:
    rows = rows_of(written(tmp_path, name, text))
    given = [{key: value for key, value in row.items() if value is not None} for row in rows]
    assert given == [{"step": "1", "reward": "0.5"}, {"step": "2", "kl": "nan"}]


def test_several_tables_of_a_text_follow_each_other(tmp_path: Path) -> None:
    table = "| step | reward |\n|---|---|\n| {} | 0.5 |\n"
    assert [row["step"] for row in rows_of(written(tmp_path, "a.md", "\n".join(map(table.format, (1, 2)))))] == [
        "1",
        "2",
    ]


RUNS = '"Name","State","Notes","User","Tags","Created","Runtime","Sweep","lr","critic/score/mean"\n'
RUN = '"grpo","finished","-","me","","2026-08-21T10:00:00.000Z","3600","","1e-6","0.5"\n'


def test_the_table_of_runs_of_wandbs_page_is_read_if_it_has_one(tmp_path: Path) -> None:
    assert rows_of(written(tmp_path, "one.csv", f"{RUNS}{RUN}"))[0]["critic/score/mean"] == "0.5"


@pytest.mark.parametrize(
    ("suffix", "compressed"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.compress)]
)
def test_a_compressed_log_is_read(suffix: str, compressed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    text = b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'
    path = tmp_path / f"log.jsonl{suffix}"
    path.write_bytes(compressed(text))
    assert format_of(path).name == "jsonl"
    assert rows_of(path) == TWO_ROWS
    path.write_bytes(compressed(text * 9)[:-6])
    with pytest.raises(InvalidInput, match=path.name):
        rows_of(path)


def test_a_compressed_log_of_nearly_nothing_is_refused_and_leaves_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(zstandard.compress(b'{"step": 1, "loss": 0.5}\n' + b" " * (257 << 20)))
    with pytest.raises(InvalidInput, match=r"log\.jsonl\.zst: cannot be unpacked: it expands to over 256 MiB"):
        rows_of(path)


REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "an export of several runs": ("export.csv", "Step,a - reward,b - reward\n1,0.5,0.6\n", "holds 2 runs"),
    "a table of several runs": ("two.csv", f"{RUNS}{RUN}{RUN}", "table of 2 runs"),
    "too many values in a line": ("log.csv", "step,reward\n1,0.5\n2,0.5,0.7\n", r"log\.csv:3"),
    "a cell that is too large": ("log.csv", f"step,reward\n1,0.5\n2,{'x' * 200_000}\n", r"log\.csv:3: is no CSV"),
    "tables of no metrics": (
        "README.md",
        "| Model | Size |\n|---|---|\n| qwen | 8 |\n\n" * 3,
        "with 3 tables, none with a column of steps or a known metric",
    ),
    "a PDF": ("log", b"%PDF-1.7\n", "is a PDF"),
    "an archive": ("log", b"PK\x03\x04\x14\x00", "is a zip archive"),
    "a pickle": ("log", b"\x80\x04\x95\x10\x00", "is a pickle"),
    "a Parquet file": ("log", b"PAR1\x15\x04", "is a Parquet file; convert it to CSV"),
    "UTF-16": ("log", "step,loss\n1,0.5\n".encode("utf-16"), "is text in UTF-16"),
    "nothing": ("log", b"", "is empty; it has no known format; known are: "),
    "other bytes": ("log", b"\x00\x01\x02", "is not text; it has no known format; known are: "),
    "an empty store": ("log", b"SQLite format 3\x00" + bytes(100), "cannot be read as a store of MLflow"),
    "text": ("log", "no metric\n", "has no row of metrics in 1 line of text; lines such as these are read"),
    "half a document": ("log", '{"loss": [1, 2', "is not valid JSON"),
}


@pytest.mark.parametrize(("name", "content", "found"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_answered_with_what_was_found(
    name: str, content: str | bytes, found: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InvalidInput, match=found):
        rows_of(path)


def test_json_lines_keep_what_the_fast_decoder_refuses(tmp_path: Path) -> None:
    big = 10**30
    lines = f'{{"step": 1, "kl": NaN, "loss": -Infinity, "n": {big}}}\n{{"step": 2, "kl": 1e400, "n": {big}}}\n'
    first, second = rows_of(written(tmp_path, "log.jsonl", "\ufeff" + lines))
    assert math.isnan(first.pop("kl"))
    assert (first, second) == ({"step": 1, "loss": -math.inf, "n": big}, {"step": 2, "kl": "1e400", "n": big})


def test_every_format_has_a_name_of_its_own() -> None:
    assert len({known.name for known in LOG_FORMATS}) == len(LOG_FORMATS)


def progress_table(names: list[str], rows: list[list[str]]) -> str:
    """Return what the callback shows: a progress bar and a table."""
    head = "".join(f"      <th>{name}</th>\n" for name in names)
    body = "".join(f"    <tr>\n{''.join(f'      <td>{cell}</td>{chr(10)}' for cell in row)}    </tr>\n" for row in rows)
    bar = "<progress value='3' max='250' style='width:300px; height:20px; vertical-align: middle;'></progress>"
    return (
        f"\n    <div>\n      \n      {bar}\n      [  3/250 01:23 < 2:46:01, 0.02 it/s, Epoch 0.03/1]\n    </div>\n"
        f'    <table border="1" class="dataframe">\n  <thead>\n <tr style="text-align: left;">\n{head}    </tr>\n'
        f"  </thead>\n  <tbody>\n{body}  </tbody>\n</table><p>"
    )


def shown(html: str) -> dict[str, Any]:
    plain = ["<IPython.core.display.HTML object>"]
    data = {"text/html": html.splitlines(keepends=True), "text/plain": plain}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def notebook(folder: Path, *cells: list[dict[str, Any]]) -> Path:
    document = {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["| Step | loss |\n|--|--|\n| 1 | 2 |"]},
            *({"cell_type": "code", "metadata": {}, "source": ["trainer.train()"], "outputs": cell} for cell in cells),
        ],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = folder / "grpo.ipynb"
    path.write_text(json.dumps(document))
    return path


def rows_in(path: Path) -> list[LogRow]:
    found = format_of(path)
    assert found.name == "notebook"
    return [item for item in found.read(path) if isinstance(item, LogRow)]


UNSLOTH = ["Step", "Training Loss", "reward", "completions / mean_length", "kl", "rewards / check / mean"]


def unsloth_rows(steps: range) -> list[list[str]]:
    return [[str(step), "0.000100", "-1.250000", "445.500000", "0.001000", "No Log"] for step in steps]


def test_the_table_of_the_callback_has_a_row_for_each_step(tmp_path: Path) -> None:
    table = shown(progress_table(UNSLOTH, unsloth_rows(range(1, 4))))
    rows = rows_in(notebook(tmp_path, [printed("Unsloth: will patch\n"), table]))
    assert [row.values["step"] for row in rows] == ["1", "2", "3"]
    assert rows[0].values == {
        "step": "1",
        "Training Loss": "0.000100",
        "reward": "-1.250000",
        "completions / mean_length": "445.500000",
        "kl": "0.001000",
    }


def test_of_the_states_of_a_growing_table_only_the_newest_is_read(tmp_path: Path) -> None:
    states = [shown(progress_table(UNSLOTH, unsloth_rows(range(1, end)))) for end in (2, 3, 5)]
    assert [row.values["step"] for row in rows_in(notebook(tmp_path, states))] == ["1", "2", "3", "4"]


def test_cells_follow_each_other_and_a_second_run_of_one_is_not_hidden(tmp_path: Path) -> None:
    cells = [[shown(progress_table(UNSLOTH, unsloth_rows(steps)))] for steps in (range(1, 3), range(1, 4))]
    assert [row.values["step"] for row in rows_in(notebook(tmp_path, *cells))] == ["1", "2", "1", "2", "3"]


def test_tables_of_a_data_set_are_no_rows_and_epochs_count_as_steps(tmp_path: Path) -> None:
    frame = shown(
        '<table border="1" class="dataframe"><thead><tr><th></th><th>prompt</th><th>length</th></tr></thead>'
        "<tbody><tr><th>0</th><td>What is 2+2?</td><td>12</td></tr></tbody></table>"
    )
    epochs = shown(progress_table(["Epoch", "Training Loss", "Validation Loss"], [["1", "No log", "0.5"]]))
    assert [row.values for row in rows_in(notebook(tmp_path, [frame, epochs]))] == [
        {"Epoch": "1", "Validation Loss": "0.5"}
    ]


def test_texts_are_read_as_console_output(tmp_path: Path) -> None:
    stream = [printed(f"{BAR}{TRL}"[:90]), printed(f"{BAR}{TRL}"[90:] + f"\n(TaskRunner pid=7) {PLAIN_VERL}\n")]
    result = {
        "output_type": "execute_result",
        "data": {"text/plain": ["{'step': 3,\n", " 'reward': 0.5,\n", " 'kl': 0.1}"]},
        "metadata": {},
        "execution_count": 1,
    }
    trl, verl, shown_row = rows_in(notebook(tmp_path, stream, [result]))
    assert (trl.bar, trl.values["reward"], verl.writer, verl.values["step"]) == (10, "0.5", "TaskRunner pid=7", "12")
    assert shown_row.values == {"step": "3", "reward": "0.5", "kl": "0.1"}


def test_an_older_notebook_has_its_cells_in_worksheets(tmp_path: Path) -> None:
    output = {"output_type": "display_data", "html": [progress_table(UNSLOTH, unsloth_rows(range(1, 3)))]}
    cell = {"cell_type": "code", "language": "python", "outputs": [output]}
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps({"metadata": {}, "nbformat": 3, "worksheets": [{"cells": [cell]}]}))
    assert [row.values["step"] for row in rows_in(path)] == ["1", "2"]


def test_an_exported_page_has_the_tables_and_the_texts(tmp_path: Path) -> None:
    path = tmp_path / "grpo.html"
    table = progress_table(UNSLOTH, unsloth_rows(range(1, 3)))
    path.write_text(f"<!DOCTYPE html>\n<html><body><pre>{TRL}</pre>{table}</body></html>")
    assert format_of(path).name == "html"
    rows = [item for item in format_of(path).read(path) if isinstance(item, LogRow)]
    assert [row.values.get("step") for row in rows] == [None, "1", "2"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"cells": [{"cell_type": "code", "source": ["x"]}]}', "is a notebook of 1 cells, and no output with metrics"),
        ('{"cells": 1}', "is a notebook of 0 cells"),
        ('{"cells": [', "is not valid JSON"),
    ],
)
def test_a_notebook_without_metrics_says_so(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.ipynb"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=found):
        list(format_of(path).read(path))
