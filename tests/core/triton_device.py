"""Tests run Triton's kernels on a CUDA device, or in Triton's interpreter if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

HAS_DEVICE = torch.cuda.is_available()
if not HAS_DEVICE:
    # Read when Triton is imported, which only the tests of its kernels do in this process.
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton, which is published for Linux only")


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    """Ignore warnings of numpy, which the interpreter uses and a compiled kernel does not emit."""
    with np.errstate(all="ignore"):
        yield


def without_interpreter(code: str) -> list[str]:
    """Return the lines that a process prints in which Triton compiles."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
