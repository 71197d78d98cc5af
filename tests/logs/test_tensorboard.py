"""Event files of TensorBoard, which PyTorch's SummaryWriter wrote, whole and damaged."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.command import run_python
from tests.fixtures.tracker_logs import TRACKER_LOGS
from trmon.cli.import_ import messages_of
from trmon.domain.analysis.logged_steps import LogDefect, LogRow, LogTally
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.logs import LogSource, format_of
from trmon.logs.tensorboard import masked_crc32c
from trmon_client.core import wire

RECORDINGS = TRACKER_LOGS / "tensorboard"
GRPO = RECORDINGS / "grpo"
NAMES = ["actor/grad_norm", "actor/pg_loss", "critic/score/mean", "rollout_corr/k3_kl", "mine/seen"]


def rows_of(path: Path) -> list[LogRow]:
    found = format_of(path)
    assert found.name == "tensorboard"
    items = list(found.read(path))
    assert [item for item in items if not isinstance(item, LogRow)] == []
    return [item for item in items if isinstance(item, LogRow)]


def defects_of(path: Path) -> list[LogDefect]:
    return [item for item in format_of(path).read(path) if isinstance(item, LogDefect)]


def imported(path: Path) -> tuple[list[wire.Start | wire.Scalars | wire.Finish], list[str]]:
    source = LogSource.of(path)
    read = LogTally(source.survey)
    messages = list(messages_of(source, RunKey("math", "grpo"), now=0.0, read=read))
    return messages, [str(defect) for defect in read.defects]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A copy of the event file of a run of six steps."""
    return Path(shutil.copy(next(GRPO.iterdir()), tmp_path))


def records_in(data: bytes) -> Iterator[slice]:
    begin = 0
    while begin < len(data):
        end = begin + 16 + int.from_bytes(data[begin : begin + 8], "little")
        yield slice(begin, end)
        begin = end


def record_of(data: bytes) -> bytes:
    """Return the record that has these bytes."""
    return _checked(len(data).to_bytes(8, "little")) + _checked(data)


def file_of(records: Iterable[bytes]) -> bytes:
    """Return the file of records."""
    return b"".join(map(record_of, records))


def payloads_in(data: bytes) -> list[bytes]:
    """Return the bytes of each record of a file."""
    return [data[record.start + 12 : record.stop - 4] for record in records_in(data)]


def _checked(part: bytes) -> bytes:
    return part + masked_crc32c(part).to_bytes(4, "little")


def test_the_scalars_of_a_step_are_a_row_with_the_time_of_the_first() -> None:
    rows = rows_of(GRPO)
    assert [row.values["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row.values["_timestamp"] for row in rows] == [1_700_000_000.0 + 60.0 * step for step in range(1, 7)]
    assert list(rows[0].values) == ["step", "_timestamp", *NAMES]
    assert rows[2].values["rollout_corr/k3_kl"] == pytest.approx(0.003)
    assert rows[3].values["actor/grad_norm"] == math.inf
    assert math.isnan(rows[4].values["actor/pg_loss"])


def test_scalars_that_are_tensors_are_read_and_texts_and_histograms_left_out() -> None:
    rows = rows_of(RECORDINGS / "tensors")
    assert [list(row.values)[2:] for row in rows] == [NAMES] * 3
    assert [row.values["rollout_corr/k3_kl"] for row in rows] == [0.001, 0.002, 0.003]


def test_a_restart_is_another_attempt_named_after_its_file() -> None:
    messages, defects = imported(RECORDINGS / "restarted")
    steps = [(message.attempt, message.step) for message in messages if isinstance(message, wire.Scalars)]
    first, second = dict.fromkeys(attempt for attempt, _ in steps)
    assert steps == [(first, step) for step in range(1, 6)] + [(second, step) for step in range(3, 8)]
    assert defects == ["goes back to step 3; read as another attempt"]


def test_a_file_that_is_being_written_keeps_its_attempt_when_more_of_its_first_step_is_read(events: Path) -> None:
    data = events.read_bytes()
    [attempt] = {message.attempt for message in imported(events)[0]}
    for record in list(records_in(data))[2:4]:
        events.write_bytes(data[: record.stop])
        [start, scalars, _] = imported(events)[0]
        assert isinstance(scalars, wire.Scalars)
        assert (start.attempt, scalars.attempt, scalars.step) == (attempt, attempt, 1)


@pytest.mark.parametrize("kept", [5, 14, 30])
def test_a_record_that_is_cut_off_is_reported_as_the_end(events: Path, kept: int) -> None:
    data = events.read_bytes()
    last = list(records_in(data))[-1]
    events.write_bytes(data[: last.start + kept])
    assert defects_of(events) == [LogDefect(0, f"is cut off within record 31 at byte {last.start}", is_end=True)]


def test_a_record_with_a_wrong_checksum_is_left_out_and_the_rest_read(events: Path) -> None:
    data = bytearray(events.read_bytes())
    damaged = list(records_in(data))[7]
    data[damaged.stop - 8] ^= 1
    events.write_bytes(data)
    reason = f"record 8 at byte {damaged.start} has a wrong checksum; left out"
    assert defects_of(events) == [LogDefect(0, reason)]
    rows = [row for row in format_of(events).read(events) if isinstance(row, LogRow)]
    assert [len(row.values) for row in rows] == [7, 6, 7, 7, 7, 7]


def test_what_follows_a_damaged_length_is_reported(events: Path) -> None:
    data = bytearray(events.read_bytes())
    damaged = list(records_in(data))[7]
    data[damaged.start] ^= 1
    events.write_bytes(data)
    reason = f"record 8 at byte {damaged.start} has a damaged length; {len(data) - damaged.start} bytes are left out"
    assert defects_of(events) == [LogDefect(0, reason)]


def test_a_record_that_is_no_event_is_left_out(events: Path) -> None:
    data = events.read_bytes()
    begin = next(records_in(data)).stop
    assert file_of(payloads_in(data)) == data
    events.write_bytes(data[:begin] + record_of(b"\xff\xff") + data[begin:])
    assert defects_of(events) == [LogDefect(0, "record 2 is no event; left out")]
    assert len(imported(events)[0]) == 8


def test_a_folder_of_several_runs_is_refused_with_their_names_and_one_of_a_single_run_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has event files of 3 runs; name one: .*grpo, .*restarted, .*tensors"):
        list(format_of(RECORDINGS).read(RECORDINGS))
    shutil.copytree(GRPO, tmp_path / "runs" / "grpo")
    assert len(rows_of(tmp_path)) == 6


def test_a_missing_package_is_one_line_that_says_what_to_install(events: Path) -> None:
    code = "import sys; sys.modules['google_crc32c'] = None; from trmon.cli import app; app()"
    told = run_python(code, "diagnose", events)
    need = "trmon: event files of TensorBoard need google_crc32c; pip install 'trmon[logs]' brings it\n"
    assert (told.returncode, told.stderr) == (1, need)
