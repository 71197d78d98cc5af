"""Group labels: integers are kept, other values are hashed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.inputs.labels import group_labels


def label(name: bytes) -> int:
    return int.from_bytes(blake2b(name).digest()[:8], "little", signed=True)


GROUPS = {
    "integers": ([5, -3], [5, -3]),
    "numpy integers": (np.array([5, 1 << 62]), [5, 1 << 62]),
    "small unsigned integers": (np.array([5, 200], np.uint8), [5, 200]),
    "a tensor": (torch.tensor([5, 7], dtype=torch.int32), [5, 7]),
    "strings": (["a", "b"], [label(b"a"), label(b"b")]),
    "numpy strings": (np.array(["a", "b"]), [label(b"a"), label(b"b")]),
    "bytes": ([b"a", b"b"], [label(b"a"), label(b"b")]),
    "integers beside strings": ([5, "b"], [5, label(b"b")]),
    "integers beyond 64 bits": ([1 << 64, 1], [label(b"18446744073709551616"), 1]),
    "unsigned integers beyond 63 bits": (np.array([1 << 63, 1], np.uint64), [label(b"9223372036854775808"), 1]),
    "text that UTF-8 cannot hold": (["\udcff", "b"], [label(b"\xed\xb3\xbf"), label(b"b")]),
    "tuples, by their text": ([(0, 1), (0, 2)], [label(b"(0, 1)"), label(b"(0, 2)")]),
}


@pytest.mark.parametrize(("given", "expected"), GROUPS.values(), ids=GROUPS)
def test_integer_labels_are_kept_and_others_hashed(given: Any, expected: list[int]) -> None:
    found = group_labels(given, None)
    assert found.dtype == np.int64
    assert found.tolist() == expected
