"""Event files of TensorBoard: one, or a folder with those of a run, each of which a process wrote after the other.

A file has records with checksums, each an event with the values of a step.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.domain.errors import InvalidInput, needs_package
from trmon.logs.log_format import (
    Fields,
    LogFormat,
    LoggedValue,
    LogItem,
    LogSample,
    in_file,
    message_reader,
    rows_of_values,
)

NAME_PART = "tfevents"
FIRST_EVENT = b"brain.Event:"
"""In the first record of a file, before the version of the format."""
SHOWN_FOLDERS = 5
SCALARS_PLUGIN = b"scalars"
_MESSAGES: Mapping[str, Fields] = {
    "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "summary": (5, "Summary")},
    "Summary": {"value": (1, "repeated Value")},
    "Value": {
        "tag": (1, "bytes"),
        "simple_value": (2, "float"),
        "tensor": (8, "Tensor"),
        "metadata": (9, "Metadata"),
    },
    "Metadata": {"plugin_data": (1, "PluginData")},
    "PluginData": {"plugin_name": (1, "bytes")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "repeated float"),
        "double_val": (6, "repeated double"),
        "int_val": (7, "repeated int32"),
        "int64_val": (10, "repeated int64"),
    },
}
"""Source: tensorboard/compat/proto/event.proto, summary.proto, tensor.proto."""
_DTYPES: Mapping[int, str] = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""Of a tensor whose content is bytes; source: tensorboard/compat/proto/types.proto."""
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def _matches(sample: LogSample) -> bool:
    if sample.path.is_dir():
        return any(_event_files(sample.path))
    return NAME_PART in sample.path.name or FIRST_EVENT in sample.data[:64]


def _event_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob(f"*{NAME_PART}*") if path.is_file())


def _files_of_run(path: Path) -> list[Path]:
    """Return the event files of a run, oldest first. Errors: InvalidInput for a folder with several runs."""
    if not path.is_dir():
        return [path]
    files = sorted(_event_files(path))
    folders = {file.parent for file in files}
    if path not in folders and len(folders) > 1:
        shown = ", ".join(map(str, sorted(folders)[:SHOWN_FOLDERS]))
        raise InvalidInput(str(path), f"has event files of {len(folders)} runs; name one: {shown}")
    return [file for file in files if file.parent == path or path not in folders]


def _read(path: Path) -> Iterator[LogItem]:
    with needs_package("logs", said="event files of TensorBoard need"):
        import google_crc32c  # noqa: F401
    for name in _files_of_run(path):
        with name.open("rb") as file:
            rows = rows_of_values(scalars_of(read_records(file)), writer=name.name)
            yield from in_file(name, rows, log=path)


def scalars_of(records: Iterable[bytes | LogDefect]) -> Iterator[LoggedValue | LogDefect]:
    """Yield the scalars of events; histograms, images, audio and texts are left out."""
    read_event = message_reader(_MESSAGES, "Event")
    plugins: dict[bytes, bytes] = {}
    for number, record in enumerate(records, start=1):
        if isinstance(record, LogDefect):
            yield record
            continue
        event = read_event(record)
        if event is None:
            yield LogDefect(0, f"record {number} is no event; left out")
            continue
        for value in event.summary.value:
            # TensorFlow names the plugin of a tag in the first of its events only.
            plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if value.HasField("simple_value"):
                number_of_value = value.simple_value
            elif plugin == SCALARS_PLUGIN:
                number_of_value = _scalar(value.tensor)
            else:
                continue
            name = value.tag.decode("utf-8", errors="replace")
            if number_of_value is None:
                yield LogDefect(0, f"{name}: the tensor of step {event.step} is no number; left out")
            else:
                yield LoggedValue(name, number_of_value, step=event.step, seconds=event.wall_time)


def _scalar(tensor: Any) -> float | None:
    """Return the one number of a tensor, None if it has none."""
    for numbers in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(numbers) == 1:
            return float(numbers[0])
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or len(tensor.tensor_content) != np.dtype(dtype).itemsize:
        return None
    return float(np.frombuffer(tensor.tensor_content, dtype)[0])


def read_records(file: BinaryIO) -> Iterator[bytes | LogDefect]:
    """Yield the bytes of each record, and a defect for damage. Source: tensorflow/core/lib/io/record_writer.h."""
    size = os.fstat(file.fileno()).st_size
    for number in count(1):
        begin = file.tell()
        header = file.read(_HEADER.size)
        if not header:
            return
        if len(header) < _HEADER.size:
            yield _cut_off(number, begin)
            return
        length, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            yield LogDefect(
                0, f"record {number} at byte {begin} has a damaged length; {size - begin} bytes are left out"
            )
            return
        if file.tell() + length + _FOOTER.size > size:
            yield _cut_off(number, begin)
            return
        data = file.read(length)
        if masked_crc32c(data) != _FOOTER.unpack(file.read(_FOOTER.size))[0]:
            yield LogDefect(0, f"record {number} at byte {begin} has a wrong checksum; left out")
        else:
            yield data


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of a record, rotated and shifted as TFRecord stores it."""
    import google_crc32c

    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _cut_off(number: int, begin: int) -> LogDefect:
    return LogDefect(0, f"is cut off within record {number} at byte {begin}", is_end=True)


TENSORBOARD = LogFormat(
    name="tensorboard",
    description="an event file of TensorBoard, or a folder with those of a run",
    matches=_matches,
    read=_read,
    files=_files_of_run,
    has_lines=False,
)
