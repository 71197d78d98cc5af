"""Loads the compiled kernels in a thread, so that no call waits for the compiler; imports numba there only."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.large_batches.block import BlockSums
from trmon_client.core.large_batches.row_blocks import RowBlock
from trmon_client.core.large_batches.scratch_buffers import ScratchBuffers
from trmon_client.core.reduction.ppo_clipping import ClipRange

COMPILE = "import trmon_client.core.large_batches.compiled.block_kernels"
"""Fills numba's cache. In a process of its own, because the compiler holds the interpreter lock for seconds; what is
left for the trainer's process takes half a second."""


class FusedSums(Protocol):
    """The compiled reduction of one block."""

    def __call__(
        self, inputs: CheckedInputs, row_block: RowBlock, scratch: ScratchBuffers, *, clip: ClipRange
    ) -> BlockSums:
        """Return all columns and histograms of the block."""


class KernelLoader:
    """Loads the kernels once for the process."""

    def __init__(self) -> None:
        self._loaded: FusedSums | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def loaded(self) -> FusedSums | None:
        """The compiled reduction, None until it is loaded."""
        return self._loaded

    def start(self, on_failure: Callable[[str], object]) -> None:
        """Start to load the kernels; later calls do nothing.

        Args: on_failure: called in the loading thread with the reason why the kernels will not be used.
        """
        with self._lock:
            if self._thread is None:
                # Not a daemon: an interpreter that exits beneath the compiler can crash.
                self._thread = threading.Thread(target=self._load, args=(on_failure,), name="trmon-compiler")
                self._thread.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end of loading, and return whether the kernels are loaded."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return self._loaded is not None

    def _load(self, on_failure: Callable[[str], object]) -> None:
        command = [sys.executable, "-c", COMPILE]
        compiler = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if compiler.returncode != 0:
            reason = compiler.stderr.strip().splitlines()[-1:] or [f"exit status {compiler.returncode}"]
            on_failure(f"compiled kernels are not used: {reason[0]}")
            return
        try:
            from trmon_client.core.large_batches.compiled.fused_sums import fused_sums
        except (ImportError, RuntimeError) as error:
            # numba raises ImportError for a NumPy that it does not support, RuntimeError if no cache is writable.
            on_failure(f"compiled kernels are not used: {error}")
            return
        self._loaded = fused_sums


KERNELS = KernelLoader()
