"""Reduces large float32 batches on the host, block by block through reused buffers.

Terms that keep their accuracy in float32 are computed in float32 (`log_ratio_sums`); k3, 1 - p and the terms of
Pearson's correlation are computed in float64 (`ratio_sums`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from trmon_client.core.arrays import NUMPY, Array, n_threads
from trmon_client.core.column_schema import COLUMNS, LABELS, PAIRS, Pair, Reduction
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.large_batches.blocks import (
    Block,
    BlockSums,
    RowBlock,
    ScratchBuffers,
    row_blocks,
    sequence_positions,
)
from trmon_client.core.large_batches.log_ratio_sums import log_ratio_sums
from trmon_client.core.large_batches.ratio_sums import ratio_sums
from trmon_client.core.reduction.sequences import NAMES
from trmon_client.core.reduction.token_terms import ClipRange, clamp_log_ratio, k3

EXTREMES = {
    name
    for name, spec in COLUMNS.items()
    if spec.reduction in (Reduction.MIN, Reduction.MAX, Reduction.POSITION)
    and spec not in LABELS
    and name != "max_positive"
}
"""Columns that are undefined for a sequence without valid tokens."""

QUADRATIC = 1e-7
"""Below it k3 equals d^2 / 2 to seven digits, while rho - 1 - d is less accurate."""


def finish_columns(parts: Sequence[BlockSums]) -> Columns:
    """Return the columns of the batch.

    Args: parts: the sums of both kinds of block, in any order; together they hold every column of every sequence.
    Source: formulas, section 3.
    """
    sums = _in_batch_order(parts)
    histograms: dict[Pair, Array] = {}
    for pair in PAIRS:
        counts = [part.histograms[pair] for part in parts if pair in part.histograms]
        if counts:
            histograms[pair] = sum(counts[1:], counts[0])
            sums |= _completed_pair({stem: sums[name] for stem, name in NAMES[pair].items() if name in sums}, pair)
    is_empty = sums["n_tokens"] == 0
    found: dict[str, Array] = {}
    for name, spec in COLUMNS.items():
        if name in sums:
            found[name] = NUMPY.cast(sums[name], spec.dtype)
            if name in EXTREMES:
                found[name][is_empty] = spec.identity
    return Columns(found, histograms)


def _in_batch_order(parts: Sequence[BlockSums]) -> dict[str, Array]:
    """Return each column of the parts, with the sequences in the order of the batch."""
    by_columns: dict[tuple[str, ...], list[BlockSums]] = {}
    for part in parts:
        by_columns.setdefault(tuple(part.by_name), []).append(part)
    found: dict[str, Array] = {}
    for names, group in by_columns.items():
        if len(group) == 1 and isinstance(group[0].rows, slice):
            found |= group[0].by_name
            continue
        order = np.argsort(np.concatenate([sequence_positions(part.rows) for part in group]))
        found |= {name: np.concatenate([part.by_name[name] for part in group])[order] for name in names}
    return found


def _completed_pair(sums: dict[str, Array], pair: Pair) -> dict[str, Array]:
    """Return the k3 columns of one pair, and the columns that rounding may have left slightly below 0."""
    found = {stem: np.maximum(sums[stem], 0.0) for stem in ("sum_binary_kl", "max_binary_kl")}
    extremes = np.stack([sums["min_d"], sums["max_d"]]).astype(np.float64)
    # Both sums are float64.
    k3_from_sums = np.maximum(sums["sum_ratio_dev"] - sums["sum_d"], 0.0)
    found["sum_k3"] = np.where(np.abs(extremes).max(0) < QUADRATIC, sums["sum_sq_d"] / 2.0, k3_from_sums)
    # k3 grows with |d| on either side of 0 as long as d is not clamped, so its maximum is at an extreme.
    k3_of_extremes = k3(NUMPY, extremes, np.expm1(clamp_log_ratio(NUMPY, extremes))).max(0)
    found["max_k3"] = np.where(np.isnan(sums["max_k3"]), k3_of_extremes, sums["max_k3"])
    return {NAMES[pair][stem]: array for stem, array in found.items()}


FLOAT64_BLOCK_TOKENS = 1 << 17
"""Positions of a float64 block: most of its buffers stay in the cache."""
FLOAT32_BLOCK_TOKENS = 1 << 19
"""Positions of a float32 block: long steps, so that the two threads seldom compete for the interpreter lock."""
LARGE_TOKENS = 1 << 13
"""Positions below which this reduction is not faster."""
LONG_ROW = 256
"""Positions of a row below which the general reduction is faster."""
THREADED_TOKENS = 1 << 19
"""Positions below which starting a second thread takes longer than the reduction."""


def is_large(inputs: CheckedInputs) -> bool:
    """Return whether this reduction is faster: many float32 tokens in long rows on the host, with a pair."""
    n_sequences, horizon = inputs.mask.shape
    if not isinstance(inputs.mask, np.ndarray) or horizon < LONG_ROW or n_sequences * horizon < LARGE_TOKENS:
        return False
    if len(inputs.logprobs) < 2:
        return False
    # Half precision is not faster and cannot represent the bounds of valid log-probs.
    return all(array.itemsize == 4 for array in inputs.logprobs.values())


def reduce_large_batch(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    """Return the columns of a large batch; uses two threads if the trainer allows torch two.

    The threads end with the call, so that a trainer can fork afterwards. Source: formulas, section 3.
    """
    own, other = ScratchBuffers.of_thread(2)
    if inputs.mask.size <= FLOAT64_BLOCK_TOKENS:
        # One block for both: its tokens are prepared once.
        with np.errstate(all="ignore"):
            whole = Block.of(inputs, RowBlock.whole(inputs.mask), own)
            return finish_columns([log_ratio_sums(whole, own, clip=clip), ratio_sums(whole, own)])
    float32_blocks, float64_blocks = row_blocks(inputs.mask, FLOAT32_BLOCK_TOKENS, FLOAT64_BLOCK_TOKENS)

    def in_float32(rows: RowBlock, scratch: ScratchBuffers) -> BlockSums:
        return log_ratio_sums(Block.of(inputs, rows, scratch), scratch, clip=clip)

    def in_float64(rows: RowBlock, scratch: ScratchBuffers) -> BlockSums:
        return ratio_sums(Block.of(inputs, rows, scratch), scratch)

    tasks = deque[Callable[[ScratchBuffers], BlockSums]]()
    tasks.extend(partial(in_float32, rows) for rows in float32_blocks)
    tasks.extend(partial(in_float64, rows) for rows in reversed(float64_blocks))
    parts: list[BlockSums] = []
    # The threads start at opposite ends: equal steps would make them wait for the interpreter lock.
    if n_threads() < 2 or inputs.mask.size < THREADED_TOKENS:
        _run_tasks(tasks.pop, parts, own)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="trmon-columns") as pool:
            future = pool.submit(_run_tasks, tasks.popleft, parts, other)
            _run_tasks(tasks.pop, parts, own)
            future.result()
    return finish_columns(parts)


def _run_tasks(
    next_task: Callable[[], Callable[[ScratchBuffers], BlockSums]], parts: list[BlockSums], scratch: ScratchBuffers
) -> None:
    with np.errstate(all="ignore"):
        while True:
            try:
                task = next_task()
            except IndexError:
                return
            parts.append(task(scratch))
