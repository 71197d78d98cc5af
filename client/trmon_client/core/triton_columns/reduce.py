"""Launches the kernel of the columns, and joins its results over the tiles of each sequence."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import triton

from trmon_client.core.arrays.backend import Array, torch_arrays
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.histogram import edges_on
from trmon_client.core.columns.schema import COLUMNS, N_BINS
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs
from trmon_client.core.inputs.token_validity import valid_tokens
from trmon_client.core.reduction.block_reduction import NAMES, SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.kl_estimators import pairs_of
from trmon_client.core.reduction.ppo_clipping import ClipRange
from trmon_client.core.reduction.sequence_labels import sequence_labels
from trmon_client.core.triton_columns import kernel

MAX_TILE, MIN_TILE, N_WARPS = 1024, 256, 8
"""Positions of a program; a tile has at least one for each thread of its warps."""
CLIP_ROWS = ("n_clipped", "n_leaked", "n_leaked_high")
POLICY_ROWS = ("first", "second", "third")


@dataclass(frozen=True)
class TileResults:
    """What the programs of the kernel stored, on the device of the arguments."""

    per_sequence: Array
    """[rows, B, tiles] float64, in the order of `kernel.SEQUENCE_ROWS`."""
    per_pair: Array
    """[pairs, rows, B, tiles] float64, in the order of `kernel.PAIR_ROWS`."""
    histograms: Array
    """[pairs, N_BINS] int64."""


def reduce_on_device(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    """Return the columns and histograms of at least two policies, without a synchronisation.

    Log-probs, mask and advantages are read once, whatever their strides. Versions given per token are reduced by torch.
    Errors: ValueError if the arguments are not on a CUDA device, which only Triton's interpreter allows.
    Source: formulas, section 3.
    """
    on_device = inputs.mapped(torch.as_tensor)
    if not on_device.mask.is_cuda and isinstance(kernel.columns_kernel, triton.JITFunction):
        raise ValueError("the arguments are on the host; backend='triton' takes CUDA tensors, 'blocks' takes both")
    columns = columns_of_tiles(on_device, _launched(on_device, clip=clip))
    return columns if on_device.mask.is_cuda else columns.with_arrays([array.numpy() for array in columns.arrays])


def columns_of_tiles(inputs: CheckedInputs, tiles: TileResults) -> Columns:
    """Return the columns of the tiles of each sequence, without a synchronisation."""
    sequence = _joined_sequence(inputs, tiles.per_sequence)
    by_name = _joined_pairs(inputs, tiles.per_pair) | sequence
    if inputs.advantages is not None and inputs.advantages.ndim == 2:
        total = tiles.per_sequence[kernel.SEQUENCE_ROWS.index("sum_advantage")].sum(-1)
        inputs = replace(inputs, advantages=total / sequence["n_tokens"])
    by_token = inputs.versions is not None and inputs.versions.ndim == 2
    by_name |= sequence_labels(inputs, valid=valid_tokens(inputs) if by_token else None)
    return Columns(by_name, dict(zip(pairs_of(inputs.logprobs), tiles.histograms, strict=True)))


def _launched(inputs: CheckedInputs, *, clip: ClipRange) -> TileResults:
    n_sequences, horizon = inputs.mask.shape
    device, n_pairs = inputs.mask.device, len(pairs_of(inputs.logprobs))
    tile = min(MAX_TILE, max(MIN_TILE, triton.next_power_of_2(horizon)))
    grid = (n_sequences, triton.cdiv(horizon, tile))
    per_sequence = torch.empty((len(kernel.SEQUENCE_ROWS), *grid), dtype=torch.float64, device=device)
    per_pair = torch.empty((n_pairs, len(kernel.PAIR_ROWS), *grid), dtype=torch.float64, device=device)
    counts = torch.zeros((n_pairs, N_BINS), dtype=torch.int64, device=device)
    if n_sequences:
        arguments = list(_token_arguments(inputs))
        kernel.columns_kernel[grid](
            *arguments,
            *(edges_on(device), per_sequence, per_pair, counts, n_sequences, horizon),
            *(stride for array in arguments for stride in array.stride()),
            THREE=len(inputs.logprobs) == len(POLICIES),
            HAS_ADVANTAGES=inputs.advantages is not None,
            CLIP_LOW=float(clip.low),
            CLIP_HIGH=float(clip.high),
            TILE=tile,
            num_warps=N_WARPS,
        )
    return TileResults(per_sequence, per_pair, counts)


def _token_arguments(inputs: CheckedInputs) -> Iterator[Array]:
    """Yield three log-probs, the mask and the advantages as [B, T]; absent ones are represented by another."""
    given = [inputs.logprobs[name] for name in POLICIES if name in inputs.logprobs]
    yield from (given[0], given[1], given[-1])
    mask = inputs.mask.view(torch.uint8)
    yield mask
    if inputs.advantages is None:
        yield mask
    else:
        advantages = inputs.advantages if inputs.advantages.ndim == 2 else inputs.advantages[:, None]
        yield advantages.expand(inputs.mask.shape)


def _joined_sequence(inputs: CheckedInputs, per_sequence: Array) -> dict[str, Array]:
    policies = [name for name in POLICIES if name in inputs.logprobs]
    sums = dict(zip(kernel.SEQUENCE_ROWS, per_sequence.sum(-1), strict=True))
    found = {name: sums[name] for name in ("n_tokens", "n_invalid", "n_clamped")}
    for name, row in zip(policies, POLICY_ROWS, strict=False):
        found[SUM_LOGP[name]], found[SUM_SQ_LOGP[name]] = sums[f"sum_{row}"], sums[f"sum_sq_{row}"]
    if POLICIES[0] in policies:
        found |= {name: sums[name] for name in ("n_mu_zero", "n_saturated")}
    if len(policies) == len(POLICIES):
        found["sum_abs_is_dev"] = sums["sum_abs_is_dev"]
    if inputs.advantages is not None:
        found |= {name: sums[name] for name in CLIP_ROWS}
    largest, position = per_sequence[-2], per_sequence[-1]
    # The first of the tiles with the largest value.
    first = position.masked_fill(largest < largest.amax(-1, keepdim=True), torch.inf).amin(-1)
    found["argmax_abs_d"] = torch.where(sums["n_tokens"] > 0, first, -1.0)
    return {name: torch_arrays().cast(array, COLUMNS[name].dtype) for name, array in found.items()}


def _joined_pairs(inputs: CheckedInputs, per_pair: Array) -> dict[str, Array]:
    rows = {stem: per_pair[:, row] for row, stem in enumerate(kernel.PAIR_ROWS)}
    # The prefixes of a tile begin with the sum of the tiles before it.
    before = torch_arrays().running_sum(rows["sum_d"], -1) - rows["sum_d"]
    rows["prefix_min_d"] += before
    rows["prefix_max_d"] += before
    n_counts, n_sums, n_minima = len(kernel.PAIR_COUNTS), len(kernel.PAIR_SUMS), len(kernel.PAIR_MINIMA)
    sizes = (n_counts, n_sums, n_minima, len(kernel.PAIR_MAXIMA))
    counts, sums, minima, maxima = per_pair.split(sizes, dim=1)
    joined = [
        *(counts.sum(-1).long().unbind(1)),
        *(sums.sum(-1).unbind(1)),
        *(minima.amin(-1).float().unbind(1)),
        *(maxima.amax(-1).float().unbind(1)),
    ]
    by_stem = dict(zip(kernel.PAIR_ROWS, joined, strict=True))
    pairs = pairs_of(inputs.logprobs)
    return {name: by_stem[stem][row] for row, pair in enumerate(pairs) for stem, name in NAMES[pair].items()}
