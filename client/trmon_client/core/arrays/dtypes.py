"""The dtypes of columns, and how many layouts of columns are remembered."""

from __future__ import annotations

from typing import Literal

DType = Literal["f8", "f4", "i8"]
"""Little-endian dtypes of columns, in memory and on the wire."""

REMEMBERED_LAYOUTS = 256
"""How many sets of columns are remembered, wherever something is made once for all reports that have the same."""
