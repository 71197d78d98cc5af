"""Computes the statistics of each batch, by Triton on CUDA if the trainer asked for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trmon_client.core.arrays import is_tensor
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.statistics import ColumnsBackend, columns_of_inputs
from trmon_client.deciding.attached_divergences import attach_divergences

NOT_ON_CUDA = "compiled=True applies to batches on a CUDA device only; this one is reduced without compiled kernels"


class BatchStatistics:
    """Columns and divergences of batches, on the device that holds them.

    Compiled kernels are Triton's, for batches on a CUDA device; the first call for a kind of input compiles them. Where
    they fail, and for batches elsewhere, plain NumPy or torch reduces the batch, with one warning.
    """

    def __init__(self, *, compiled: bool, warn: Callable[[str, str], object]) -> None:
        """Args: compiled: whether to use compiled kernels; warn: called with a key and a line, in any thread."""
        self._compiled = compiled
        self._warn = warn
        self._has_failed = False

    def of(self, inputs: CheckedInputs, *, logits: Mapping[str, Any]) -> Columns:
        """Return the columns of a batch, with the divergences that its logits allow.

        Errors: ValueError naming the argument that is missing or wrong.
        """
        if not self._compiled or self._has_failed:
            return _reduced(inputs, logits=logits, backend="blocks")
        if not _is_on_cuda(inputs.mask):
            self._warn("compiled on the host", NOT_ON_CUDA)
            return _reduced(inputs, logits=logits, backend="blocks")
        try:
            return _reduced(inputs, logits=logits, backend="triton")
        except Exception as error:  # noqa: BLE001  whatever a compiler meets, training goes on without it
            failure = error
        # A wrong argument raises here again.
        columns = _reduced(inputs, logits=logits, backend="blocks")
        # Memory that was short for one batch may suffice for the next.
        self._has_failed = type(failure).__name__ != "OutOfMemoryError"
        text = f"compiled kernels are not used on the device: {type(failure).__name__}: {failure}"
        self._warn(f"compiled on the device {self._has_failed}", text)
        return columns


def _reduced(inputs: CheckedInputs, *, logits: Mapping[str, Any], backend: ColumnsBackend) -> Columns:
    columns = columns_of_inputs(inputs, backend=backend)
    sides = [value for name, value in logits.items() if name.endswith("logits") and value is not None]
    # What the kernel of divergences lacks: sums of squares, other devices, float64 and float8.
    is_taken = not logits.get("sum_pi_squared") and all(_is_on_cuda(one) and one.itemsize in (2, 4) for one in sides)
    return attach_divergences(columns, inputs=inputs, logits=logits, backend=backend if is_taken else "blocks")


def _is_on_cuda(array: Any) -> bool:
    return is_tensor(array) and bool(array.is_cuda)
