"""Exact divergences in a Triton kernel: one program for each token reads each logit once, twice for total variation.

This module imports Triton, so it is imported only on request. e is taken relative to its value at argmax a, the shift,
so that small divergences survive float32. With eps = e - shift, phi(eps) = expm1(eps) - eps and
gamma(eps) = eps exp(eps) - expm1(eps), which are both sums of positive terms for small eps,

    KL = log1p(E_p[eps] + E_p[phi]) - E_p[eps]      reverse KL = (E_p[gamma] - gamma(log E_p[exp eps])) / E_p[exp eps]
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from trmon_client.core.arrays import Array
from trmon_client.core.divergence.logits import ROLLOUT, CheckedLogits
from trmon_client.core.kernel_launches import launch
from trmon_client.core.triton_functions import added, fast_exp, highest, on_device_of

TILE, PER_THREAD, N_WARPS, MAX_REGISTERS = 512, 8, 2, 72
"""The number of logits of each policy that a program holds at a time, and those of one thread.

With fewer registers than the compiler would take, more programs run at a time and hide each other's waits.
"""
MAX_SHIFTED = 20.0
"""If the shift moves farther, divergences come from the log-sum-exps, accurate to 1e-6 absolute."""
_SERIES_BELOW = tl.constexpr(0.125)
_LOWEST = tl.constexpr(-1e30)
"""Stands for a logit of -inf, so that differences are finite."""
_NO_TOP = tl.constexpr(-5e29)
"""The largest of no logits: above `_LOWEST`, whose mass must be 0, and below all others."""

SUMS = ("top_a", "top_b", "shift", "z", "w", "z_eps", "w_eps", "z_phi", "z_gamma", "z_log", "w_log", "widest", "tv")
"""The values that the kernel stores for each token; z and w are sums of exp(a - top_a) and exp(b - top_b), and `z_eps`
is -inf where p alone, `w_eps` inf where q alone can sample a token."""


def triton_divergences(
    logits: CheckedLogits, *, target: str, variations: Mapping[str, tuple[str, str]]
) -> dict[str, Array]:
    """Return the divergences at counting tokens, float64 [B, T] by quantity; NaN elsewhere.

    Args: target: the argument of the trainer's logits whose divergences from mu's are computed; variations: those of
        each total variation, by a second pass over them.
    Errors: ValueError naming logits that are not tensors, or are float64.
    Source: formulas, section 4.
    """
    sums = _token_sums(logits, (ROLLOUT, target), tv="tv" in variations)
    found = _divergences_from_sums(dict(zip(SUMS, sums, strict=True)))
    for quantity, sides in variations.items():
        of_sides = sums if quantity == "tv" else _token_sums(logits, sides, tv=True)
        found[quantity] = of_sides[SUMS.index("tv")]
    return {quantity: array if array.is_cuda else array.numpy() for quantity, array in found.items()}


def _token_sums(logits: CheckedLogits, sides: tuple[str, str], *, tv: bool) -> Array:
    """Return `SUMS` of the tokens of both sides, [sums, B, T]; NaN at tokens that do not count."""
    a, b = (_tensor(name, logits.by_name[name]) for name in sides)
    sums = torch.full((len(SUMS), *a.shape[:2]), torch.nan, dtype=torch.float64, device=a.device)
    mask = torch.as_tensor(logits.mask, device=a.device).contiguous()
    has_support = logits.support is not None
    support = torch.as_tensor(logits.support, device=a.device).expand(a.shape) if has_support else mask[..., None]
    if mask.numel():
        arguments = [a, b, mask.view(torch.uint8), support.view(torch.uint8), sums]
        arguments += [mask.numel(), mask.shape[1], a.shape[2], *a.stride(), *b.stride(), *support.stride()]
        options: dict[str, Any] = {"HAS_SUPPORT": has_support, "TV": tv, "TILE": TILE, "THREADS": TILE // PER_THREAD}
        options |= {"WIDE": MAX_SHIFTED, "num_warps": N_WARPS, "maxnreg": MAX_REGISTERS}
        launch(_kernel, (mask.numel(),), arguments, options, on_device=on_device_of(a))
    return sums


def _tensor(name: str, array: Array) -> Array:
    allowed = (torch.bfloat16, torch.float16, torch.float32)
    if not isinstance(array, torch.Tensor):
        raise ValueError(f"{name} is a numpy array; the kernel takes device tensors, and 'blocks' takes both")
    if array.dtype not in allowed:
        raise ValueError(
            f"{name} has dtype {array.dtype}; the kernel takes {', '.join(str(dtype) for dtype in allowed)}"
        )
    return array


def _divergences_from_sums(sums: dict[str, Array]) -> dict[str, Array]:
    z, w, z_eps = _nan_if_none(sums["z"]), _nan_if_none(sums["w"]), sums["z_eps"]
    mean_eps = z_eps / z
    log_mean_exp = torch.log(w / z) + (sums["top_b"] - sums["top_a"] - sums["shift"])
    # They are infinite if one policy can sample what the other cannot.
    is_finite = (z_eps > -torch.inf) & (sums["w_eps"] < torch.inf)
    near = is_finite & (sums["widest"] <= MAX_SHIFTED) & (log_mean_exp.abs() < 1.0) & (sums["z_phi"] < z)
    growth = (z_eps + sums["z_phi"]) / z
    precise = torch.log1p(growth)
    reverse = (sums["z_gamma"] / z - ((1.0 + growth) * precise - growth)) / (1.0 + growth)
    kl = torch.where(near, precise - mean_eps, log_mean_exp - mean_eps)
    reverse_kl = torch.where(near, reverse, sums["w_eps"] / w - log_mean_exp)
    return {
        "kl": kl.clamp_min(0.0),
        "reverse_kl": reverse_kl.clamp_min(0.0),
        "entropy_rollout": torch.log(z) - sums["z_log"] / z,
        "entropy": torch.log(w) - sums["w_log"] / w,
    }


def _nan_if_none(mass: Array) -> Array:
    return mass.masked_fill(mass == 0.0, torch.nan)


# The code below is compiled by Triton, which supports neither keyword-only arguments nor structures in loops.


# Triton would pass a single token as an integer of Python.
@triton.jit(do_not_specialize=["n_tokens"])
def _kernel(
    a_ptr, b_ptr, mask_ptr, support_ptr, sums_ptr, n_tokens, horizon, vocabulary,
    a_row, a_column, a_step, b_row, b_column, b_step, support_row, support_column, support_step,
    HAS_SUPPORT: tl.constexpr, TV: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    if tl.load(mask_ptr + token) == 0:
        return
    row, column = token // horizon, token % horizon
    a_ptr += row * a_row + column * a_column
    b_ptr += row * b_row + column * b_column
    support_ptr += row * support_row + column * support_column
    top_a, shift = tl.full([], _NO_TOP, tl.float32), tl.full([], 0.0, tl.float32)
    top_b, widest, scale, p_only, q_only = top_a, shift, shift, shift, shift
    z = tl.zeros([THREADS], tl.float64)
    z_eps, z_phi, z_gamma, z_log, w, w_eps, w_log = z, z, z, z, z, z, z
    for start in range(0, vocabulary, TILE):
        a, b = _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE)
        rise = tl.maximum(highest(a, THREADS) - top_a, highest(b, THREADS) - top_b)
        has_impossible = highest(-tl.minimum(a, b), THREADS) >= -_LOWEST
        # Seldom after the first tiles.
        if tl.max(tl.where(has_impossible, 1.0, rise)) > 0.0:
            before_a, before_b, before_shift = top_a, top_b, shift
            top_a, top_b, shift = _tops(a, b, top_a, top_b, shift, WIDE)
            delta = tl.where(before_a == _NO_TOP, 0.0, before_shift - shift).to(tl.float64)
            widest = tl.maximum(widest, tl.abs(delta).to(tl.float32))
            z, z_eps, z_phi, z_gamma, z_log = _moved_p(z, z_eps, z_phi, z_gamma, z_log, before_a - top_a, delta, WIDE)
            w, w_eps, w_log = _moved_q(w, w_eps, w_log, before_b - top_b, delta)
            # What mu cannot sample counts once mu's unit is known.
            offset = tl.minimum(top_b - top_a - shift, WIDE).to(tl.float64)
            scale = tl.where(top_a == _NO_TOP, 0.0, tl.exp(offset)).to(tl.float32)
            p_only = _largest_alone(p_only * tl.exp(before_a - top_a), a, b, top_a)
            q_only = _largest_alone(q_only * tl.exp(before_b - top_b), b, a, top_b)
        mass_a, log_a = _weights(a, top_a)
        mass_b, log_b = _weights(b, top_b)
        # In this order, so that a constant difference between the logits costs no digits.
        eps = (b - shift) - a
        mass_eps, mass_phi, mass_gamma = _growth(mass_a, mass_b * scale, eps)
        z += _added(mass_a, THREADS)
        z_eps += _added(mass_eps, THREADS)
        z_phi += _added(mass_phi, THREADS)
        z_gamma += _added(mass_gamma, THREADS)
        z_log += _added(mass_a * log_a, THREADS)
        w += _added(mass_b, THREADS)
        w_eps += _added(mass_b * eps, THREADS)
        w_log += _added(mass_b * log_b, THREADS)
    z, w = tl.sum(z), tl.sum(w)
    tv = tl.zeros([THREADS], tl.float64)
    if TV:
        for start in range(0, vocabulary, TILE):
            a, b = _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE)
            mass_a, _ = _weights(a, top_a)
            mass_b, _ = _weights(b, top_b)
            tv += _added(tl.abs(mass_a / z.to(tl.float32) - mass_b / w.to(tl.float32)), THREADS)
    out, stride = sums_ptr + token, n_tokens.to(tl.int64)
    tl.store(out, top_a)
    tl.store(out + stride, top_b)
    tl.store(out + 2 * stride, shift)
    tl.store(out + 3 * stride, z)
    tl.store(out + 4 * stride, w)
    tl.store(out + 5 * stride, tl.where(p_only > 0.0, -float("inf"), tl.sum(z_eps)))
    tl.store(out + 6 * stride, tl.where(q_only > 0.0, float("inf"), tl.sum(w_eps)))
    tl.store(out + 7 * stride, tl.sum(z_phi))
    tl.store(out + 8 * stride, tl.sum(z_gamma))
    tl.store(out + 9 * stride, tl.sum(z_log))
    tl.store(out + 10 * stride, tl.sum(w_log))
    tl.store(out + 11 * stride, widest)
    tl.store(out + 12 * stride, tl.sum(tv) / 2)


@triton.jit
def _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE):
    """Return the logits of a tile in float32, the lowest number outside the vocabulary and the support."""
    index = (start + tl.arange(0, TILE)).to(tl.int64)
    inside = index < vocabulary
    if HAS_SUPPORT:
        inside = inside & (tl.load(support_ptr + index * support_step, mask=inside, other=0) != 0)
    a = tl.load(a_ptr + index * a_step, mask=inside, other=-float("inf")).to(tl.float32)
    b = tl.load(b_ptr + index * b_step, mask=inside, other=-float("inf")).to(tl.float32)
    return _finite(a), _finite(b)


@triton.jit
def _finite(logits):
    return tl.maximum(logits, _LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _tops(a, b, top_a, top_b, shift, WIDE):
    """Return the new maxima and the shift, which stays if the other policy hardly samples the new favourite."""
    favourite, top_b = tl.maximum(top_a, tl.max(a)), tl.maximum(top_b, tl.max(b))
    there = tl.max(tl.where(a == favourite, b - a, _LOWEST))
    moves = (favourite > top_a) & (there > top_b - favourite - WIDE)
    return favourite, top_b, tl.where(moves, there, shift)


@triton.jit
def _moved_p(z, z_eps, z_phi, z_gamma, z_log, fall, delta, WIDE):
    """Return the sums under p after its maximum changes by -fall and each eps by delta."""
    bounded = tl.minimum(tl.maximum(delta, -WIDE), WIDE)
    growth = tl.exp(bounded)
    rise = growth - 1.0
    z_gamma = growth * z_gamma + bounded * growth * (z_eps + z_phi) + (bounded * growth - rise) * z
    z_phi = growth * z_phi + rise * z_eps + (rise - bounded) * z
    fall = fall.to(tl.float64)
    kept = tl.exp(fall)
    return z * kept, (z_eps + delta * z) * kept, z_phi * kept, z_gamma * kept, (z_log + fall * z) * kept


@triton.jit
def _moved_q(w, w_eps, w_log, fall, delta):
    """Return the sums under q after its maximum changes by -fall and each eps by delta."""
    fall = fall.to(tl.float64)
    kept = tl.exp(fall)
    return w * kept, (w_eps + delta * w) * kept, (w_log + fall * w) * kept


@triton.jit
def _largest_alone(before, logits, others, top):
    """Return the largest mass of a token that the other policy cannot sample."""
    return tl.maximum(before, tl.max(tl.where(others <= _LOWEST, _weights(logits, top)[0], 0.0)))


@triton.jit
def _growth(mass, grown, eps):
    """Return z eps, z phi(eps) and z gamma(eps) at each logit, from z and z exp(eps)."""
    is_near = tl.abs(eps) < _SERIES_BELOW
    mass_eps, added_mass = mass * eps, grown - mass
    series = mass_eps * eps * (1 / 2 + eps * (1 / 6 + eps * (1 / 24 + eps * (1 / 120))))
    phi = tl.where(is_near, series, added_mass - mass_eps)
    gamma = tl.where(is_near, eps * (mass_eps + series) - series, eps * grown - added_mass)
    return mass_eps, phi, gamma


@triton.jit
def _weights(logits, top):
    """Return exp(logits - top), and the difference."""
    log = logits - top
    return fast_exp(log), log


@triton.jit
def _added(terms, THREADS: tl.constexpr):
    return added(terms, THREADS).to(tl.float64)
