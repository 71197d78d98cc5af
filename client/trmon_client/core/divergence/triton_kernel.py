"""Exact divergences in a Triton kernel: one program per token reads each logit once and sums in float64.

This module imports Triton, so it is imported only on request. e is taken relative to its value at argmax a, the shift,
so that small divergences survive float32. With eps = e - shift, phi(eps) = expm1(eps) - eps and
gamma(eps) = eps exp(eps) - expm1(eps), which are both sums of positive terms for small eps,

    KL = log1p(E_p[eps] + E_p[phi]) - E_p[eps]      reverse KL = (E_p[gamma] - gamma(log E_p[exp eps])) / E_p[exp eps]
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trmon_client.core.arrays.backend import Array
from trmon_client.core.inputs.logits import CheckedLogits

TILE = 2048
"""The number of logits of each policy that a program holds at a time."""
N_WARPS = 4
MAX_SHIFTED = 20.0
"""Above it exp(eps) is not summed: divergences come from the log-sum-exps, accurate to 1e-6 absolute."""

SUMS = ("top_a", "top_b", "shift", "z", "w", "z_eps", "w_eps", "z_phi", "z_gamma", "z_log", "w_log", "widest", "tv")
"""The values that the kernel stores for each token; z and w are sums of exp(a - top_a) and exp(b - top_b)."""


def triton_divergences(logits: CheckedLogits, *, rollout: str, target: str, tv: bool) -> dict[str, Array]:
    """Return the divergences at counting tokens, float64 [B, T] by quantity; NaN elsewhere.

    Args: rollout, target: the argument names of the logits of mu and of the trainer; tv: also total variation, by a
        second pass.
    Errors: ValueError naming logits that are not tensors, or are float64.
    Source: formulas, section 4.
    """
    a, b = (_tensor(name, logits.by_name[name]) for name in (rollout, target))
    sums = torch.full((len(SUMS), *a.shape[:2]), torch.nan, dtype=torch.float64, device=a.device)
    mask = torch.as_tensor(logits.mask, device=a.device).contiguous()
    has_support = logits.support is not None
    support = torch.as_tensor(logits.support, device=a.device).expand(a.shape) if has_support else mask[..., None]
    if mask.numel():
        _kernel[(mask.numel(),)](
            *(a, b, mask.view(torch.uint8), support.view(torch.uint8), sums),
            *(mask.numel(), mask.shape[1], a.shape[2]),
            *(*a.stride(), *b.stride(), *support.stride()),
            HAS_SUPPORT=has_support,
            TV=tv,
            TILE=TILE,
            WIDE=MAX_SHIFTED,
            num_warps=N_WARPS,
        )
    divergences = _divergences_from_sums(dict(zip(SUMS, sums, strict=True)))
    if tv:
        divergences["tv"] = sums[SUMS.index("tv")]
    return {quantity: array if array.is_cuda else array.numpy() for quantity, array in divergences.items()}


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
    """Return the divergences computed from the sums of the kernel, in float64."""
    z, w, z_eps = sums["z"], sums["w"], sums["z_eps"]
    mean_eps = z_eps / z
    log_mean_exp = torch.log(w / z) + (sums["top_b"] - sums["top_a"] - sums["shift"])
    # z_eps is -inf if p has mass outside the support of q.
    near = (sums["widest"] <= MAX_SHIFTED) & (log_mean_exp.abs() < 1.0) & (z_eps > -torch.inf)
    growth = (z_eps + sums["z_phi"]) / z
    precise = torch.log1p(growth)
    reverse = (sums["z_gamma"] / z - ((1.0 + growth) * precise - growth)) / (1.0 + growth)
    return {
        "kl": torch.where(near, precise - mean_eps, log_mean_exp - mean_eps).clamp_min(0.0),
        "reverse_kl": torch.where(near, reverse, sums["w_eps"] / w - log_mean_exp).clamp_min(0.0),
        "entropy_rollout": torch.log(z) - sums["z_log"] / z,
        "entropy": torch.log(w) - sums["w_log"] / w,
    }


# The code below is compiled by Triton, which supports neither keyword-only arguments nor structures in loops.


@triton.jit
def _kernel(
    a_ptr, b_ptr, mask_ptr, support_ptr, sums_ptr, n_tokens, horizon, vocabulary,
    a_row, a_column, a_step, b_row, b_column, b_step, support_row, support_column, support_step,
    HAS_SUPPORT: tl.constexpr, TV: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    if tl.load(mask_ptr + token) == 0:
        return
    row, column = token // horizon, token % horizon
    a_ptr += row * a_row + column * a_column
    b_ptr += row * b_row + column * b_column
    support_ptr += row * support_row + column * support_column
    top_a, top_b, shift, widest = -float("inf"), -float("inf"), 0.0, 0.0
    none = tl.full([], 0.0, tl.float64)
    z, z_eps, z_phi, z_gamma, z_log, w, w_eps, w_log, tv = none, none, none, none, none, none, none, none, none
    for start in range(0, vocabulary, TILE):
        a, b = _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE)
        before_a, before_b, before_shift = top_a, top_b, shift
        top_a, top_b, shift = _tops(a, b, top_a, top_b, shift)
        delta = tl.where(z == 0.0, 0.0, (before_shift - shift).to(tl.float64))
        z, z_eps, z_phi, z_gamma, z_log = _moved_p(z, z_eps, z_phi, z_gamma, z_log, before_a - top_a, delta, WIDE)
        w, w_eps, w_log = _moved_q(w, w_eps, w_log, before_b - top_b, delta)
        dz, dz_eps, dz_phi, dz_gamma, dz_log = _sums_p(a, b, top_a, top_b, shift, WIDE)
        dw, dw_eps, dw_log = _sums_q(a, b, top_b, shift)
        z, z_eps, z_phi, z_gamma, z_log = z + dz, z_eps + dz_eps, z_phi + dz_phi, z_gamma + dz_gamma, z_log + dz_log
        w, w_eps, w_log = w + dw, w_eps + dw_eps, w_log + dw_log
        widest = tl.maximum(tl.maximum(widest, tl.abs(delta).to(tl.float32)), _width(a, b, top_a, top_b, shift))
    if TV:
        for start in range(0, vocabulary, TILE):
            a, b = _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE)
            tv += _sum(tl.abs(_weights(a, top_a) / z.to(tl.float32) - _weights(b, top_b) / w.to(tl.float32))) / 2
    _store(
        sums_ptr + token, n_tokens, top_a, top_b, shift, z, w, z_eps, w_eps, z_phi, z_gamma, z_log, w_log, widest, tv
    )


@triton.jit
def _store(out, stride, top_a, top_b, shift, z, w, z_eps, w_eps, z_phi, z_gamma, z_log, w_log, widest, tv):
    tl.store(out, top_a)
    tl.store(out + stride, top_b)
    tl.store(out + 2 * stride, shift)
    tl.store(out + 3 * stride, z)
    tl.store(out + 4 * stride, w)
    tl.store(out + 5 * stride, z_eps)
    tl.store(out + 6 * stride, w_eps)
    tl.store(out + 7 * stride, z_phi)
    tl.store(out + 8 * stride, z_gamma)
    tl.store(out + 9 * stride, z_log)
    tl.store(out + 10 * stride, w_log)
    tl.store(out + 11 * stride, widest)
    tl.store(out + 12 * stride, tv)


@triton.jit
def _tile(a_ptr, b_ptr, support_ptr, a_step, b_step, support_step, start, vocabulary, HAS_SUPPORT, TILE):
    """Return the logits of a tile in float32, -inf outside the vocabulary and the support."""
    index = (start + tl.arange(0, TILE)).to(tl.int64)
    inside = index < vocabulary
    if HAS_SUPPORT:
        inside = inside & (tl.load(support_ptr + index * support_step, mask=inside, other=0) != 0)
    a = tl.load(a_ptr + index * a_step, mask=inside, other=-float("inf")).to(tl.float32)
    b = tl.load(b_ptr + index * b_step, mask=inside, other=-float("inf")).to(tl.float32)
    return a, b


@triton.jit
def _tops(a, b, top_a, top_b, shift):
    """Return the running maxima and the shift, which keeps its value if the new one is not finite."""
    highest = tl.maximum(top_a, tl.max(a))
    there = tl.max(tl.where((a == highest) & (a > -float("inf")), b - a, -float("inf")))
    moves = (highest > top_a) & (tl.abs(there) < float("inf"))
    return highest, tl.maximum(top_b, tl.max(b)), tl.where(moves, there, shift)


@triton.jit
def _moved_p(z, z_eps, z_phi, z_gamma, z_log, fall, delta, WIDE):
    """Return the sums under p after its maximum changes by -fall and each eps by delta."""
    fall = tl.where(z == 0.0, 0.0, fall.to(tl.float64))
    bounded = tl.minimum(tl.maximum(delta, -WIDE), WIDE)
    growth = tl.exp(bounded)
    rise = growth - 1.0
    z_gamma = growth * z_gamma + bounded * growth * (z_eps + z_phi) + (bounded * growth - rise) * z
    z_phi = growth * z_phi + rise * z_eps + (rise - bounded) * z
    kept = tl.exp(fall)
    return z * kept, (z_eps + delta * z) * kept, z_phi * kept, z_gamma * kept, (z_log + fall * z) * kept


@triton.jit
def _moved_q(w, w_eps, w_log, fall, delta):
    """Return the sums under q after its maximum changes by -fall and each eps by delta."""
    fall = tl.where(w == 0.0, 0.0, fall.to(tl.float64))
    kept = tl.exp(fall)
    return w * kept, (w_eps + delta * w) * kept, (w_log + fall * w) * kept


@triton.jit
def _sums_p(a, b, top_a, top_b, shift, WIDE):
    """Return the sums of a tile under p; entries with z = 0 contribute nothing."""
    z = _weights(a, top_a)
    # In this order, so that a constant difference between the logits costs no digits.
    eps = tl.where(z == 0.0, 0.0, (b - shift) - a)
    near = tl.abs(eps) < 0.5
    small = tl.where(near, eps, 0.0)
    tail = 1 / 24 + small * (1 / 120 + small * (1 / 720 + small * (1 / 5040 + small * (1 / 40320))))
    phi = small * small * (1 / 2 + small * (1 / 6 + small * tail))
    # z exp(eps) without a third exponential.
    grown = _weights(b, top_b) * tl.exp(tl.minimum(top_b - top_a - shift, WIDE))
    z_phi = tl.where(near, z * phi, grown - z - z * eps)
    z_gamma = tl.where(near, z * (small * (small + phi) - phi), grown * eps - grown + z)
    logs = tl.where(z == 0.0, 0.0, a - top_a)
    return _sum(z), _sum(z * eps), _sum(z_phi), _sum(z_gamma), _sum(z * logs)


@triton.jit
def _sums_q(a, b, top_b, shift):
    """Return the sums of a tile under q; entries with w = 0 contribute nothing."""
    w = _weights(b, top_b)
    eps = tl.where(w == 0.0, 0.0, (b - shift) - a)
    logs = tl.where(w == 0.0, 0.0, b - top_b)
    return _sum(w), _sum(w * eps), _sum(w * logs)


@triton.jit
def _width(a, b, top_a, top_b, shift):
    """Return the largest |eps| where either policy has mass."""
    massless = (_weights(a, top_a) == 0.0) & (_weights(b, top_b) == 0.0)
    return tl.max(tl.where(massless, 0.0, tl.abs((b - shift) - a)))


@triton.jit
def _weights(logits, top):
    """Return exp(logits - top); 0 while no logit is above -inf."""
    return tl.exp(logits - tl.where(top == -float("inf"), 0.0, top))


@triton.jit
def _sum(terms):
    return tl.sum(terms).to(tl.float64)
