"""Functions of all Triton kernels: launches, fast exponentials and logarithms, reductions within a thread.

This module imports Triton, so it is imported only by the kernels.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.language.extra import libdevice

from trmon_client.core.arrays import Array

_IS_INTERPRETED = tl.constexpr(knobs.runtime.interpret)
"""The interpreter cannot call a library of the device."""


def on_device_of(array: Array) -> Callable[[], AbstractContextManager[None]]:
    """Return what makes contexts whose launches go to the device and the stream of a tensor, not the current device's.

    It does not keep the tensor.
    """
    return partial(torch.cuda.device, array.device) if array.is_cuda else nullcontext


@triton.jit
def fast_exp(x):
    """Return exp(x) in float32, with a relative error of some 1e-7 (1 + |x|); results below 1e-38 are 0."""
    if _IS_INTERPRETED:
        return tl.exp(x)
    return libdevice.fast_expf(x)


@triton.jit
def fast_log2(x):
    """Return the logarithm of a float32 to base 2, accurate to 2^-22."""
    if _IS_INTERPRETED:
        return tl.log2(x)
    # Below 1e-38 it is that of 0; otherwise each logarithm would scale such numbers first.
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_quotient(x, y):
    """Return x / y in float32 for y from 1e-38 to 1e38, with a relative error of some 2e-7."""
    if _IS_INTERPRETED:
        return x / y
    return x * tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def added(terms, THREADS: tl.constexpr):
    """Return the sums of neighbours, which one thread holds: [n] as [threads]."""
    return tl.sum(tl.reshape(terms, [THREADS, terms.shape[0] // THREADS]), 1)


@triton.jit
def highest(terms, THREADS: tl.constexpr):
    """Return the largest of neighbours, which one thread holds: [n] as [threads]."""
    return tl.max(tl.reshape(terms, [THREADS, terms.shape[0] // THREADS]), 1)


@triton.jit
def added_rows(terms, THREADS: tl.constexpr):
    """Return the sums of neighbours: [n, rows] as [threads, rows]."""
    return tl.sum(tl.reshape(terms, [THREADS, terms.shape[0] // THREADS, terms.shape[1]]), 1)


@triton.jit
def highest_rows(terms, THREADS: tl.constexpr):
    """Return the largest of neighbours: [n, rows] as [threads, rows]."""
    return tl.max(tl.reshape(terms, [THREADS, terms.shape[0] // THREADS, terms.shape[1]]), 1)
