"""All columns of one block of a large batch."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays import NUMPY, Array
from trmon_client.core.clipping import ClipRange, clip_columns, clipped_pair
from trmon_client.core.columns import Columns
from trmon_client.core.histogram import sorted_in_place
from trmon_client.core.inputs import POLICIES, Inputs
from trmon_client.core.large.block import Block
from trmon_client.core.large.log_ratio import log_ratio_columns, primary_columns
from trmon_client.core.large.policy_terms import PolicyTerms
from trmon_client.core.large.probability import probability_columns
from trmon_client.core.large.ratio import deviations, ratio_columns
from trmon_client.core.large.scratch import Buffers
from trmon_client.core.ratios import RATIOS, pairs_of
from trmon_client.core.reduction import NAMES, SATURATED_BELOW, SUM_LOGP
from trmon_client.core.schema import COLUMNS, Pair, primary
from trmon_client.core.sequence_labels import sequence_labels


def block_columns(inputs: Inputs, buffers: Buffers, *, clip: ClipRange) -> Columns:
    """Return the columns and histograms of one block. Source: formulas, section 3."""
    block = Block.of(inputs, buffers)
    policies = {
        name: PolicyTerms.of(block, raw, index=index) for index, (name, raw) in enumerate(inputs.logprobs.items())
    }
    found = _of_policies(block, policies)
    histograms: dict[Pair, Array] = {}
    pairs = pairs_of(policies)
    for pair in pairs:
        above, below = (policies[name] for name in RATIOS[pair])
        d = np.subtract(above.logp, below.logp, out=buffers.d)
        by_stem = log_ratio_columns(block, d)
        if pair == primary(pairs):
            found |= primary_columns(block, d)
        dev = deviations(block, d, largest=max(by_stem["max_d"].max(), -by_stem["min_d"].min()))
        by_stem |= ratio_columns(block, dev)
        if len(policies) == len(POLICIES):
            found |= _importance_columns(block, pair, dev)
        if inputs.advantages is not None and pair == clipped_pair(pairs):
            found |= _clip_columns(inputs.advantages, dev, clip=clip)
        by_stem |= probability_columns(block, above, below)
        found |= {name: by_stem[stem] for stem, name in NAMES[pair].items()}
        histograms[pair] = sorted_in_place(d, n_absent=d.size - int(block.n_tokens.sum()))
    values = {name: NUMPY.cast(array, COLUMNS[name].dtype) for name, array in found.items()}
    return Columns(values | sequence_labels(inputs, valid=block.valid), histograms)


def _of_policies(block: Block, policies: dict[str, PolicyTerms]) -> dict[str, Array]:
    found = {"n_tokens": block.n_tokens, "n_invalid": block.count(block.counts) - block.n_tokens}
    for name, terms in policies.items():
        found[SUM_LOGP[name]] = block.sum(terms.logp)
    first, second = (terms.logp for terms in (*policies.values(),)[:2])
    if POLICIES[0] in policies:
        found["n_saturated"] = block.count(block.valid & (first == 0.0) & (second < SATURATED_BELOW))
    return found


def _importance_columns(block: Block, pair: Pair, dev: Array) -> dict[str, Array]:
    """Return how far the ratios of total are from those of mismatch, once both have passed, in this order."""
    kept = block.buffers.mismatch_dev
    if pair == "mismatch":
        np.copyto(kept, dev)
    if pair != "total":
        return {}
    np.subtract(dev, kept, out=kept)
    return {"sum_abs_is_dev": block.sum(np.abs(kept, out=kept))}


def _clip_columns(advantages: Array, dev: Array, *, clip: ClipRange) -> dict[str, Array]:
    signs = advantages if advantages.ndim == 2 else advantages[:, None]
    return clip_columns(NUMPY, dev, advantages=signs, clip=clip, axis=-1)
