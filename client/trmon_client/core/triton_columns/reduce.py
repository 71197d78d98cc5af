"""Launches the kernel of the columns, and joins its results over the stretches of each sequence."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import triton

from trmon_client.core.arrays import Array, torch_arrays
from trmon_client.core.column_schema import CLIP_STEMS, N_BINS
from trmon_client.core.columns import ZERO_BIN, Columns, edges_on
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, valid_tokens
from trmon_client.core.kernel_launches import launch
from trmon_client.core.reduction.sequences import NAMES, SUM_LOGP, SUM_SQ_LOGP, sequence_labels
from trmon_client.core.reduction.token_terms import (
    MAX_ABS_EXPONENT,
    RATIOS,
    ClipRange,
    ClipTokens,
    k3,
    pairs_of,
    rollout_pair,
    times,
)
from trmon_client.core.triton_columns import kernel
from trmon_client.core.triton_functions import on_device_of

TILE, PER_THREAD, N_WARPS = 128, 4, 1
"""Tokens of a program at a time, and those of one thread."""
SHORT, LONG = 4, 16
"""Tiles of a stretch, which one program reduces. Two choices only: the kernel is compiled for each, because Triton 3.9
crashes on a loop whose length it does not know."""
ROLLOUT_ROWS = ("n_mu_zero", "n_saturated", "n_mu_zero_unlikely", "n_unlikely", "n_zero_tail", "n_positive")


@dataclass(frozen=True)
class StretchResults:
    """The kernel's output, on the device of the arguments."""

    table: Array
    """[rows, B, stretches] float64: the sums and maxima that `rows` names, and the position of the last maximum."""
    histograms: Array
    """[shards, pairs, N_BINS] int32, without the valid tokens of the bin at zero."""


def reduce_on_device(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    """Return the columns and histograms of at least two policies, without a synchronisation.

    Log-probs, mask and advantages are read once, whatever their strides. Versions given per token are reduced by torch.
    Errors: ValueError if the arguments are not on a CUDA device, which only Triton's interpreter allows.
    Source: formulas, section 3.
    """
    on_device = inputs.mapped(torch.as_tensor)
    if not on_device.mask.is_cuda and isinstance(kernel.columns_kernel, triton.JITFunction):
        raise ValueError("the arguments are on the host; backend='triton' takes CUDA tensors, 'blocks' takes both")
    columns = columns_of_stretches(on_device, reduce_stretches(on_device, clip=clip))
    return columns if on_device.mask.is_cuda else columns.with_arrays([array.numpy() for array in columns.arrays])


def columns_of_stretches(inputs: CheckedInputs, found: StretchResults) -> Columns:
    """Return the columns from what is known of each stretch, without a synchronisation. Overwrites the table."""
    policies = tuple(inputs.logprobs)
    pairs, highest = pairs_of(policies), kernel.names_of_maxima(policies)
    summed = kernel.names_of_sums(policies, advantages=_with_advantage(inputs))
    _begin_prefixes_at_the_sequence(found.table, n_sums=len(summed), n_pairs=len(pairs))
    # Empty the tail of zeros of each stretch that a later one ends with a token that is not zero.
    n_tokens, n_invalid, n_zero = (found.table[summed.index(name)] for name in ("n_tokens", "n_invalid", "n_mu_zero"))
    n_other = n_tokens + n_invalid - n_zero
    n_later = n_other.sum(-1, keepdim=True) - torch_arrays().running_sum(n_other, -1)
    found.table[summed.index("n_zero_tail")].masked_fill_(n_later > 0, 0.0)
    sums, maxima, position = found.table.split((len(summed), len(highest), 1))
    largest = maxima[-1]
    sums, maxima = sums.sum(-1), maxima.amax(-1)
    max_positive = maxima[highest.index(f"{pairs[0]}_max_positive")].float()
    by_row = dict(zip(summed, sums.unbind(), strict=True)) | {"max_positive": max_positive}
    n_tokens = by_row["n_tokens"]
    # The first of the stretches with the largest value.
    place = position[0].masked_fill(largest < maxima[-1][:, None], torch.inf).amin(-1)
    by_row["argmax_abs_d"] = place.masked_fill(n_tokens == 0, -1.0).long()
    # All counts and all extremes at a time: a launch costs more than its work.
    by_row |= {
        name: row
        for name, row in zip(summed, sums.long().unbind(), strict=True)
        if name.startswith("n_") or "_n_" in name
    }
    extremes = _extremes(maxima[:-1], n_tokens=n_tokens, n_pairs=len(pairs)).unbind()
    by_row |= zip((f"{pair}_{stem}" for pair in pairs for stem in kernel.PAIR_EXTREMES), extremes, strict=True)
    if inputs.advantages is not None and inputs.advantages.ndim == 2:
        inputs = replace(inputs, advantages=by_row["sum_advantage"] / n_tokens)
    by_token = inputs.versions is not None and inputs.versions.ndim == 2
    labels = sequence_labels(inputs, valid=valid_tokens(inputs) if by_token else None)
    histograms = found.histograms.sum(0)
    histograms[:, ZERO_BIN] = n_tokens.sum().long() - histograms.sum(-1)
    by_name = _pair_columns(policies, by_row) | _sequence_columns(inputs, by_row) | labels
    return Columns(by_name, dict(zip(pairs, histograms, strict=True)))


def reduce_stretches(inputs: CheckedInputs, *, clip: ClipRange) -> StretchResults:
    """Launch the kernel on tensors, and return what it stores."""
    n_sequences, horizon = inputs.mask.shape
    device, n_pairs = inputs.mask.device, len(pairs_of(inputs.logprobs))
    n_tiles = SHORT if horizon <= SHORT * TILE else LONG
    grid = (n_sequences, triton.cdiv(horizon, n_tiles * TILE))
    policies = tuple(inputs.logprobs)
    n_sums = len(kernel.names_of_sums(policies, advantages=_with_advantage(inputs)))
    n_rows = n_sums + len(kernel.names_of_maxima(policies)) + 1
    table = torch.empty((n_rows, *grid), dtype=torch.float64, device=device)
    counts = torch.zeros((kernel.N_SHARDS, n_pairs, N_BINS), dtype=torch.int32, device=device)
    if n_sequences:
        arguments = list(_token_arguments(inputs))
        options = {
            "THREE": len(inputs.logprobs) == len(POLICIES),
            "ADVANTAGES": _with_advantage(inputs),
            "CLIP_LOW": float(clip.low),
            "CLIP_HIGH": float(clip.high),
            "CLIP_DUAL": float(clip.dual),
            "N_TILES": n_tiles,
            "TILE": TILE,
            "THREADS": TILE // PER_THREAD,
            "num_warps": N_WARPS,
        }
        strides = [stride for array in arguments for stride in array.stride()]
        given = [*arguments, edges_on(device, is_single=True), table, counts, n_sequences, horizon, *strides]
        launch(kernel.columns_kernel, grid, given, options, on_device=on_device_of(inputs.mask))
    return StretchResults(table, counts)


def _token_arguments(inputs: CheckedInputs) -> Iterator[Array]:
    """Yield three log-probs, the mask and the tokens' advantages, [B, T]; absent ones are represented by another."""
    given = [inputs.logprobs[name] for name in POLICIES if name in inputs.logprobs]
    yield from (given[0], given[1], given[-1])
    mask = inputs.mask.view(torch.uint8)
    yield mask
    yield inputs.advantages if inputs.advantages is not None and inputs.advantages.ndim == 2 else mask


def _with_advantage(inputs: CheckedInputs) -> str:
    """Return what has an advantage, a key of `kernel.CLIP_COUNTS`."""
    return "none" if inputs.advantages is None else "token" if inputs.advantages.ndim == 2 else "sequence"


def _begin_prefixes_at_the_sequence(table: Array, *, n_sums: int, n_pairs: int) -> None:
    """Add to the prefixes of a stretch the sum of d of the stretches before it."""
    if table.shape[-1] == 1:
        return
    n_pair_sums, n_pair_maxima = len(kernel.PAIR_SUMS), len(kernel.PAIR_MAXIMA)
    sum_d = table[: n_pairs * n_pair_sums].unflatten(0, (n_pairs, n_pair_sums))[:, kernel.PAIR_SUMS.index("sum_d")]
    maxima = table[n_sums : n_sums + n_pairs * n_pair_maxima].unflatten(0, (n_pairs, n_pair_maxima))
    before = torch_arrays().running_sum(sum_d, -1) - sum_d
    maxima[:, kernel.PAIR_MAXIMA.index("prefix_max_d")] += before
    maxima[:, kernel.PAIR_MAXIMA.index("negated_prefix_min_d")] -= before


def _extremes(maxima: Array, *, n_tokens: Array, n_pairs: int) -> Array:
    """Return `kernel.PAIR_EXTREMES` of all pairs from their maxima, float32 [rows, B]."""
    negated_min_d, negated_prefix, max_d, prefix, max_k3, *rest = maxima.unflatten(0, (n_pairs, -1)).unbind(1)
    d = torch.stack((-negated_min_d, max_d))
    # The largest k3 is that of an extreme of d, in float64 to more digits than the kernel has; unless d is clamped.
    exact = k3(torch_arrays(), d, torch.expm1(d)).amax(0)
    max_k3 = torch.where(d.abs().amax(0) <= MAX_ABS_EXPONENT, exact, max_k3)
    # The terms of the last rows are 0 where no token is valid.
    last = torch.stack((max_k3, *rest), 1).masked_fill(n_tokens == 0, -torch.inf)
    first = torch.stack((d[0], -negated_prefix, max_d, prefix), 1)
    return torch.cat((first, last), 1).float().flatten(0, 1)


def _sequence_columns(inputs: CheckedInputs, by_row: dict[str, Array]) -> dict[str, Array]:
    policies = tuple(inputs.logprobs)
    found = {name: by_row[name] for name in ("n_tokens", "n_invalid", "n_clamped", "argmax_abs_d")}
    for policy in policies:
        found[SUM_LOGP[policy]] = by_row[f"{policy}_sum_logp"]
        found[SUM_SQ_LOGP[policy]] = by_row[f"{policy}_sum_sq_logp"]
    if POLICIES[0] in policies:
        found |= {name: by_row[name] for name in ROLLOUT_ROWS}
        found["max_positive"] = by_row["max_positive"]
        found["n_prob_diff_half"] = by_row[f"{rollout_pair(pairs_of(policies))}_n_prob_diff_half"]
    if len(policies) == len(POLICIES):
        found["sum_abs_is_dev"] = by_row["sum_abs_is_dev"]
    if inputs.advantages is not None and "n_above" in by_row:
        tokens = ClipTokens(by_row["n_above"], by_row["n_below"], by_row["n_far"], by_row["n_tokens"])
        found |= tokens.columns(inputs.advantages, both=times)
    elif inputs.advantages is not None:
        found |= {name: by_row[name] for name in CLIP_STEMS}
    return found


def _pair_columns(policies: tuple[str, ...], by_row: dict[str, Array]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for pair in pairs_of(policies):
        above, below = RATIOS[pair]
        stems = (*kernel.PAIR_SUMS, *kernel.CROSS_MOMENTS, *kernel.PAIR_EXTREMES)
        by_stem = {stem: by_row[f"{pair}_{stem}"] for stem in stems}
        by_stem |= {"sum_p": by_row[f"{above}_sum_p"], "sum_pp": by_row[f"{above}_sum_sq_p"]}
        by_stem |= {"sum_q": by_row[f"{below}_sum_p"], "sum_qq": by_row[f"{below}_sum_sq_p"]}
        found |= {name: by_stem[stem] for stem, name in NAMES[pair].items()}
    return found
