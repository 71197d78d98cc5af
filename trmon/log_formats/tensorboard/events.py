"""The scalars in the events of TensorBoard, with their steps and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.log_formats.protobuf_schema import Fields, message_class
from trmon.log_formats.step_rows import LoggedValue

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


def scalars_of(records: Iterable[bytes | LogDefect]) -> Iterator[LoggedValue | LogDefect]:
    """Yield the scalars of events; histograms, images, audio and texts are left out."""
    event_class = message_class(_MESSAGES, "Event")
    plugins: dict[bytes, bytes] = {}
    for number, record in enumerate(records, start=1):
        if isinstance(record, LogDefect):
            yield record
            continue
        try:
            event = event_class.FromString(record)
        except DecodeError:
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
