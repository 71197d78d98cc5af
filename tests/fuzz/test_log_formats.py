"""Files that people give: logs and tokens."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.fixtures.fuzzing import NUMBERS, PLAIN_VALUES, edited, edited_document
from tests.fixtures.tracker_logs import unpacked_mlflow_store
from tests.logs import test_console as console_logs
from tests.logs import test_tensorboard as tensorboard_logs
from tests.logs import test_wandb as wandb_logs
from tests.logs.test_formats import STATE
from tests.logs.test_tracker_files import trackio_store
from trmon.cli.diagnose import print_report
from trmon.cli.import_ import messages_of
from trmon.cli.replay import read_recordings
from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.translation import FRAMEWORKS
from trmon.domain.identity import RunKey
from trmon.domain.preflight.causes import preflight
from trmon.domain.recording import replay_recording
from trmon.logs import LogSource
from trmon.terminal.preflight_scores import ScoreFile
from trmon.terminal.run_report import report_on_log
from trmon_client.api.answers import encode_answer
from trmon_client.core import acceptance, wire
from trmon_client.core.recording_format import INDEX_FILE

pytestmark = pytest.mark.fuzz

METRICS = [name for table in FRAMEWORKS for name in table.signals]
METRICS += ["step", "kl_k3", "reward_mean", "entropy", "grad_norm", "response_length_mean", "epoch"]
NAMES = st.sampled_from(METRICS) | st.text(max_size=12)
ROWS = st.lists(st.dictionaries(NAMES, NUMBERS | st.text(max_size=8), max_size=6), min_size=1, max_size=12)
NESTED_ROWS = st.lists(st.dictionaries(NAMES, PLAIN_VALUES, max_size=6), min_size=1, max_size=6)
CONSOLE_LINES = [text for text in vars(console_logs).values() if isinstance(text, str) and "\n" not in text[:1]]


def cells_in(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return a header and a line of texts for each row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [names, *([str(row.get(name, "")) for name in names] for row in rows)]


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, escapechar="\\").writerows(cells_in(rows))
    return text.getvalue().encode(errors="surrogatepass")


def as_markdown(rows: list[dict[str, Any]]) -> bytes:
    header, *lines = ("| " + " | ".join(line) + " |" for line in cells_in(rows))
    return "\n".join([header, "|" + "---|" * header.count(" |"), *lines]).encode(errors="surrogatepass")


def as_html(rows: list[dict[str, Any]]) -> bytes:
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in cells_in(rows))
    return f'<table border="1">{"".join(lines)}</table>'.encode(errors="surrogatepass")


def as_notebook(outputs: list[bytes]) -> bytes:
    """Return a notebook with a cell for each output, of HTML or of text."""
    texts = [output.decode(errors="replace") for output in outputs]
    data = [{"text/html" if text.startswith("<table") else "text/plain": [text]} for text in texts]
    cells = [{"cell_type": "code", "outputs": [{"output_type": "display_data", "data": shown}]} for shown in data]
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


def as_columns(rows: list[dict[str, Any]]) -> bytes:
    header, *lines = cells_in(rows)
    return json.dumps(
        {"run": {name: list(column) for name, column in zip(header, zip(*lines, strict=True), strict=True)}}
    ).encode()


def as_long_form(rows: list[dict[str, Any]]) -> bytes:
    values = [(i, name, value) for i, row in enumerate(rows) for name, value in row.items()]
    return json.dumps([{"step": i, "metric": name, "value": value} for i, name, value in values]).encode()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


@st.composite
def edited_records(
    draw: st.DrawFn,
    files: st.SearchStrategy[bytes],
    records_in: Callable[[bytes], list[bytes]],
    file_of: Callable[[Iterable[bytes]], bytes],
) -> bytes:
    """Return a file of records one of which is edited and has the right checksum."""
    records = records_in(draw(files))
    i = draw(st.integers(0, len(records) - 1))
    return file_of([*records[:i], draw(edited(st.just(records[i]))), *records[i + 1 :]])


def recorded(folder: Path) -> st.SearchStrategy[bytes]:
    return st.sampled_from([path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()])


@cache
def small_mlflow_store() -> bytes:
    """Return a store of MLflow with the two tables that are read."""
    with TemporaryDirectory() as folder:
        store = unpacked_mlflow_store(Path(folder))
        with closing(sqlite3.connect(store, isolation_level=None)) as database:
            kept = ("metrics", "runs")
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for name in {name for (name,) in tables} - {*kept, "sqlite_sequence"}:
                database.execute(f"DROP TABLE {name}")
            database.execute("VACUUM")
        return store.read_bytes()


@cache
def small_trackio_store() -> bytes:
    with TemporaryDirectory() as folder:
        return trackio_store(Path(folder), names=("grpo",), is_new=True).read_bytes()


EVENTS = recorded(tensorboard_logs.RECORDINGS)
WANDB = recorded(wandb_logs.RECORDINGS)
CONSOLE = st.lists(st.sampled_from(CONSOLE_LINES), min_size=1, max_size=6).map("\n".join).map(str.encode)
WELL_FORMED = st.one_of(
    ROWS.map(as_csv),
    NESTED_ROWS.map(as_lines),
    NESTED_ROWS.map(json.dumps).map(str.encode),
    NESTED_ROWS.map(lambda rows: json.dumps({"log_history": rows}).encode()),
    edited_document(st.just(json.loads(STATE)), leaves=PLAIN_VALUES).map(json.dumps).map(str.encode),
    CONSOLE,
    ROWS.map(as_markdown),
    ROWS.map(as_html),
    ROWS.map(as_columns),
    ROWS.map(as_long_form),
    st.lists(CONSOLE | ROWS.map(as_html), max_size=4).map(as_notebook),
    ROWS.map(as_csv).map(lambda text: text.replace(b",", b"\t")),
    CONSOLE.map(gzip.compress),
)
LOGS = st.one_of(st.binary(max_size=200), WELL_FORMED, edited(WELL_FORMED))
FILE_NAMES = st.sampled_from(
    ["log.txt", "log.json", "log.jsonl", "log.csv", "log.md", "trainer_state.json", "log.ipynb"]
)
TRACKER_FILES = st.one_of(
    edited(EVENTS),
    edited_records(EVENTS, tensorboard_logs.payloads_in, tensorboard_logs.file_of),
    edited(WANDB),
    edited_records(WANDB, wandb_logs.payloads_in, wandb_logs.chunked),
    edited(st.builds(small_mlflow_store)),
    edited(st.builds(small_trackio_store)),
)
METRIC_FILES = st.dictionaries(
    st.sampled_from(["loss", "kl", "train/reward"]),
    edited(st.just(b"1700000000000 0.5 1\n1700000001000 nan 2\n")),
    min_size=1,
)


def check_import(file: Path) -> None:
    """Check that a log is refused, or that it gives messages that a service accepts."""
    try:
        source = LogSource.of(file)
    except InvalidInput as refusal:
        assert str(refusal)
        return
    for message in messages_of(source, RunKey("math", "grpo"), now=0.0):
        assert wire.decode(wire.encode(message))


@settings(max_examples=40)
@given(LOGS, FILE_NAMES)
def test_a_log_is_refused_or_reported_on_and_imported(data: bytes, name: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        check_import(file)
        try:
            report = report_on_log(file)
        except InvalidInput as refusal:
            assert str(refusal)
            return
    assert report.log.first_step <= report.log.last_step
    assert json.loads(encode_answer(report))
    printed = io.StringIO()
    print_report(report, Console(file=printed, width=120))
    assert printed.getvalue()


@settings(max_examples=25)
@given(TRACKER_FILES)
def test_a_file_of_a_tracker_is_refused_or_imported(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "events.out.tfevents.1"
        file.write_bytes(data)
        check_import(file)


@settings(max_examples=8)
@given(METRIC_FILES)
def test_a_folder_of_mlflow_is_refused_or_imported(metrics: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        run = Path(folder)
        (run / "meta.yaml").write_text("run_name: grpo\n")
        for name, data in metrics.items():
            file = run / "metrics" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        check_import(run)


ROW: dict[str, Any] = {"rollout_logprobs": [-1.0, -2.0], "old_logprobs": [-1.1, -2.0], "mask": [1, 1]}
TOKEN_ROWS = st.lists(
    edited_document(st.just(ROW), leaves=PLAIN_VALUES) | st.just(ROW) | PLAIN_VALUES, min_size=1, max_size=4
)
CALL = {
    "file": "a.npz",
    "step": 1,
    "update": None,
    "chunk": 0,
    "mode": "observe",
    "policy": acceptance.preset("trm_max").spec(),
    "kl_is": "sampled",
}
INDEX = {"project": "p", "run": "r", "rank": 0, "world_size": 1, "reason": "incident", "written_at": 1.0}
INDEX |= {"client_version": "0", "calls": [CALL], "format": 1, "semantics": 2}


def archive() -> bytes:
    file = io.BytesIO()
    ones = np.ones((2, 3))
    np.savez(file, rollout_logprobs=-ones, old_logprobs=-1.1 * ones, mask=ones > 0, accepted=np.ones(2, bool))
    return file.getvalue()


def compare(name: str, content: bytes) -> None:
    """Compare the two engines of a file, which may be refused."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with suppress(InvalidInput):
            file = ScoreFile(path)
            preflight(file.rollout(), file.trainer())


@settings(max_examples=30)
@given(TOKEN_ROWS)
def test_lines_are_refused_or_compared(rows: list[Any]) -> None:
    compare("a.jsonl", "\n".join(map(json.dumps, rows)).encode())


@settings(max_examples=30)
@given(edited(st.just(archive())))
def test_an_archive_is_refused_or_compared(content: bytes) -> None:
    compare("a.npz", content)


@settings(max_examples=30)
@given(edited_document(st.just(INDEX), leaves=PLAIN_VALUES), edited(st.just(archive())) | st.just(archive()))
def test_a_recording_is_refused_or_replayed(index: Any, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        Path(folder, INDEX_FILE).write_text(json.dumps(index))
        Path(folder, "a.npz").write_bytes(content)
        with suppress(InvalidInput):
            replay_recording(read_recordings(Path(folder)), n_worst=3)
