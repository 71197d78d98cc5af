"""Reduces large float32 batches on the host, block by block through reused buffers.

Terms that keep their accuracy in float32 are computed in float32 (`log_ratio_sums`); k3, 1 - p and the terms of
Pearson's correlation are computed in float64 (`ratio_sums`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from trmon_client.core.arrays.backend import n_threads
from trmon_client.core.columns.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.large_batches.block import BlockSums
from trmon_client.core.large_batches.finish import finish_columns
from trmon_client.core.large_batches.log_ratio_sums import log_ratio_sums
from trmon_client.core.large_batches.ratio_sums import ratio_sums
from trmon_client.core.large_batches.row_blocks import row_blocks
from trmon_client.core.large_batches.scratch_buffers import ScratchBuffers
from trmon_client.core.reduction.ppo_clipping import ClipRange

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
    tasks = deque(_tasks(inputs, clip=clip))
    parts: list[BlockSums] = []
    own, other = ScratchBuffers.of_thread(2)
    # The threads start at opposite ends: equal steps would make them wait for the interpreter lock.
    if n_threads() < 2 or inputs.mask.size < THREADED_TOKENS:
        _run_tasks(tasks.pop, parts, own)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="trmon-columns") as pool:
            future = pool.submit(_run_tasks, tasks.popleft, parts, other)
            _run_tasks(tasks.pop, parts, own)
            future.result()
    return finish_columns(parts)


def _tasks(inputs: CheckedInputs, *, clip: ClipRange) -> list[Callable[[ScratchBuffers], BlockSums]]:
    float32_blocks, float64_blocks = row_blocks(inputs.mask, FLOAT32_BLOCK_TOKENS, FLOAT64_BLOCK_TOKENS)
    return [
        *(partial(log_ratio_sums, inputs, block, clip=clip) for block in float32_blocks),
        *(partial(ratio_sums, inputs, block) for block in reversed(float64_blocks)),
    ]


def _run_tasks(
    next_task: Callable[[], Callable[[ScratchBuffers], BlockSums]], parts: list[BlockSums], scratch: ScratchBuffers
) -> None:
    """Run tasks until none is left."""
    with np.errstate(all="ignore"):
        while True:
            try:
                task = next_task()
            except IndexError:
                return
            parts.append(task(scratch))
