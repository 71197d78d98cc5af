"""Converts group labels, which mark responses to the same prompt, to 64-bit integers."""

from __future__ import annotations

from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor
from trmon_client.core.arrays.conversion import dtype_kind, to_computable

INT64 = np.iinfo(np.int64)


def group_labels(labels: Any, device: Device) -> Array:
    """Return labels as int64 [B]: 64-bit integers unchanged, other values hashed.

    Args: labels: tensor, array or list of integers, strings, bytes or objects with a unique `str`.
    Source: formulas, section 3.
    """
    if hasattr(labels, "dtype") and dtype_kind(labels) == "i" and not str(labels.dtype).endswith("uint64"):
        array = to_computable(labels, device)
        return array.long() if is_tensor(array) else array.astype(np.int64, copy=False)
    values = labels.tolist() if hasattr(labels, "tolist") else labels
    return to_computable(np.array([_label(value) for value in values], dtype=np.int64), device)


def _label(value: Any) -> int:
    if isinstance(value, Integral) and INT64.min <= int(value) <= INT64.max:
        return int(value)
    name = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(name).digest()[:8], "little", signed=True)
