"""The types of arrays and devices, the dtypes of columns, and the size of caches keyed by column layout."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""
Device: TypeAlias = Any
"""A CUDA device of torch; None is the host, where arrays are numpy arrays."""

DType = Literal["f8", "f4", "i8"]
"""Little-endian dtypes of columns, in memory and on the wire."""

MAX_CACHED_LAYOUTS = 256
"""The number of column layouts in each cache; reports with the same columns share an entry."""
