"""Tests run Triton's kernels on a CUDA device, or in Triton's interpreter if there is none."""

from __future__ import annotations

import os

import pytest
import torch

HAS_DEVICE = torch.cuda.is_available()
if not HAS_DEVICE:
    # Read when Triton is imported, which only the tests of its kernels do in this process.
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton, which is published for Linux only")
