"""The precision in which runs are stored that a model is fitted to; the model reads live signals in it too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FLOAT32_MANTISSA_BITS = 23
ONE = np.uint32(1)


class StoredPrecision:
    """Rounds to a number of significant bits; what a rounding needs of it is computed once."""

    def __init__(self, significant_bits: Any) -> None:
        """Args: significant_bits: 2 to 23, a number or one for each value."""
        self._dropped = np.uint32(FLOAT32_MANTISSA_BITS + 1) - np.asarray(significant_bits, np.uint32)
        self._just_below_half = (ONE << (self._dropped - ONE)) - ONE

    def rounded(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return values as float32, rounded half to even; NaN and infinity stay."""
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        pattern = single.view(np.uint32)
        rounded = pattern + self._just_below_half + ((pattern >> self._dropped) & ONE)
        return np.where(np.isfinite(single), (rounded >> self._dropped << self._dropped).view(np.float32), single)


COARSE_BITS, FINE_BITS = 8, 16
COARSE, FINE = StoredPrecision(COARSE_BITS), StoredPrecision(FINE_BITS)
"""The precision of a signal, and of one whose distance to 1 matters."""
