"""Outputs of Jupyter notebooks, as Hugging Face's notebook callback, TRL, Unsloth and verl leave them in cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.logs.test_console import BAR, PLAIN_VERL, TRL
from trmon.domain.analysis.logged_steps import LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs import format_of


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


def rows_of(path: Path) -> list[LogRow]:
    found = format_of(path)
    assert found.name == "notebook"
    return [item for item in found.read(path) if isinstance(item, LogRow)]


UNSLOTH = ["Step", "Training Loss", "reward", "completions / mean_length", "kl", "rewards / check / mean"]


def unsloth_rows(steps: range) -> list[list[str]]:
    return [[str(step), "0.000100", "-1.250000", "445.500000", "0.001000", "No Log"] for step in steps]


def test_the_table_of_the_callback_has_a_row_for_each_step(tmp_path: Path) -> None:
    table = shown(progress_table(UNSLOTH, unsloth_rows(range(1, 4))))
    rows = rows_of(notebook(tmp_path, [printed("Unsloth: will patch\n"), table]))
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
    assert [row.values["step"] for row in rows_of(notebook(tmp_path, states))] == ["1", "2", "3", "4"]


def test_cells_follow_each_other_and_a_second_run_of_one_is_not_hidden(tmp_path: Path) -> None:
    cells = [[shown(progress_table(UNSLOTH, unsloth_rows(steps)))] for steps in (range(1, 3), range(1, 4))]
    assert [row.values["step"] for row in rows_of(notebook(tmp_path, *cells))] == ["1", "2", "1", "2", "3"]


def test_tables_of_a_data_set_are_no_rows_and_epochs_count_as_steps(tmp_path: Path) -> None:
    frame = shown(
        '<table border="1" class="dataframe"><thead><tr><th></th><th>prompt</th><th>length</th></tr></thead>'
        "<tbody><tr><th>0</th><td>What is 2+2?</td><td>12</td></tr></tbody></table>"
    )
    epochs = shown(progress_table(["Epoch", "Training Loss", "Validation Loss"], [["1", "No log", "0.5"]]))
    assert [row.values for row in rows_of(notebook(tmp_path, [frame, epochs]))] == [
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
    trl, verl, shown_row = rows_of(notebook(tmp_path, stream, [result]))
    assert (trl.bar, trl.values["reward"], verl.writer, verl.values["step"]) == (10, "0.5", "TaskRunner pid=7", "12")
    assert shown_row.values == {"step": "3", "reward": "0.5", "kl": "0.1"}


def test_an_older_notebook_has_its_cells_in_worksheets(tmp_path: Path) -> None:
    output = {"output_type": "display_data", "html": [progress_table(UNSLOTH, unsloth_rows(range(1, 3)))]}
    cell = {"cell_type": "code", "language": "python", "outputs": [output]}
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps({"metadata": {}, "nbformat": 3, "worksheets": [{"cells": [cell]}]}))
    assert [row.values["step"] for row in rows_of(path)] == ["1", "2"]


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
