"""The reduction of large batches of float32 on the host: what `reduction` gives, in less than half of its time.

Block by block through buffers that are kept: what float32 can tell in float32 (`log_ratio_sums`), the rest, k3, 1 - p
and what Pearson's correlation is made of, in float64 (`ratio_sums`).
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

BLOCK_TOKENS = 1 << 17
"""Positions of a block of float64: few of its buffers leave the cache."""
SLAB_TOKENS = 1 << 19
"""Positions of a block of float32: so long are its steps that its thread is seldom in the way of another."""
LARGE_TOKENS = 1 << 13
"""Smaller batches gain nothing."""
LONG_ROW = 256
"""Shorter rows are reduced faster side by side."""
THREADED_TOKENS = 1 << 19
"""Fewer positions are done before a second thread has started."""


def is_large(inputs: CheckedInputs) -> bool:
    """Return whether these are best reduced here: many tokens, in long rows, on the host, that float32 holds."""
    n_sequences, horizon = inputs.mask.shape
    if not isinstance(inputs.mask, np.ndarray) or horizon < LONG_ROW or n_sequences * horizon < LARGE_TOKENS:
        return False
    # Half precision is no cheaper, and has no numbers for the bounds of what is valid.
    return all(array.itemsize == 4 for array in inputs.logprobs.values())


def reduce_large_batch(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    """Return the columns of a large batch, by two threads where the trainer lets torch have as many.

    The threads end with the call: a forked trainer never misses one. Source: formulas, section 3.
    """
    slabs, blocks = row_blocks(inputs.mask, SLAB_TOKENS, BLOCK_TOKENS)
    waiting = deque(
        [
            *(partial(log_ratio_sums, inputs, slab, clip=clip) for slab in slabs),
            *(partial(ratio_sums, inputs, block) for block in reversed(blocks)),
        ]
    )
    found: list[BlockSums] = []
    mine, other = ScratchBuffers.mine(2)
    # From both ends: two threads that took the same steps would wait for the interpreter at each.
    if n_threads() < 2 or inputs.mask.size < THREADED_TOKENS:
        _work(waiting.pop, found, mine)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="trmon-columns") as pool:
            helper = pool.submit(_work, waiting.popleft, found, other)
            _work(waiting.pop, found, mine)
            helper.result()
    return finish_columns(found)


def _work(
    take: Callable[[], Callable[[ScratchBuffers], BlockSums]], found: list[BlockSums], scratch: ScratchBuffers
) -> None:
    """Do what there is to take, until there is none."""
    with np.errstate(all="ignore"):
        while True:
            try:
                task = take()
            except IndexError:
                return
            found.append(task(scratch))
