"""Certified lower bounds of KL from the top-k log-probs of the rollout engine.

Coarsening both distributions to {each v in S, the rest} can only lower their KL (data processing inequality), so a few
log-probs of mu give a lower bound. S is the set of the returned top-k and the sampled token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array, Arrays, functions_of, is_tensor
from trmon_client.core.divergence.logits import CheckedLogits
from trmon_client.core.divergence.vocabulary_sums import Softmax
from trmon_client.core.inputs.checked_inputs import is_sound
from trmon_client.core.reduction.token_terms import MIN_REST, NO_REST

MAX_DISAGREEMENT = 1e-3
"""The largest difference in nats of the two log-probs of the sampled token if both are of one softmax."""
RENORMALISED_WITHIN = 1e-5
RENORMALISED_SHARE = 0.99
"""If the top-k probabilities sum to 1 within RENORMALISED_WITHIN at more than this share of tokens, they count as
renormalised over k; the share is below 1, so that a few corrupt tokens do not hide the others."""


@dataclass(frozen=True)
class TopK:
    """The returned ids and log-probs [B, T, k], and those of the sampled token [B, T], on one device."""

    ids: Array
    logprobs: Array
    sampled_ids: Array
    sampled_logprobs: Array
    vocabulary: int

    @property
    def xp(self) -> Arrays:
        """The array functions for these arrays."""
        return functions_of(self.ids)

    def is_rejected(self, mask: Array) -> bool:
        """Return whether these cannot be log-probs of mu's softmax over the whole vocabulary; waits for a device.

        They disagree with the log-prob of the sampled token, sum to more than 1, or sum to 1 at nearly every token with
        k < V. A batch whose top-k hold all the mass looks like a renormalised one and is rejected too.
        Source: formulas, section 4.
        """
        xp = self.xp
        is_sampled = (self.ids == self.sampled_ids[..., None]) & is_sound(self.logprobs)
        with np.errstate(all="ignore"):
            differs = xp.abs(self.logprobs - self.sampled_logprobs[..., None]) > MAX_DISAGREEMENT
            impossible = (mask & (TopKSupport.of(self).mass > 1.0 + MAX_DISAGREEMENT)).any()
            sums_to_1 = xp.abs(TopKSupport.of(self, sampled=False).mass - 1.0) <= RENORMALISED_WITHIN
        disagrees = (is_sampled & differs & mask[..., None]).any()
        renormalised = (sums_to_1 & mask).sum() > RENORMALISED_SHARE * mask.sum()
        return bool(disagrees | impossible | (renormalised & (self.ids.shape[-1] < self.vocabulary)))


@dataclass(frozen=True)
class TopKSupport:
    """The set S at each token: ids, and log-probs and probabilities of mu, [B, T, n], without duplicates.

    Where `kept` is unset, the entry is a duplicate or was not returned: its probability is 0, its id that of another.
    """

    xp: Arrays
    ids: Array
    kept: Array
    logp: Array
    p: Array
    is_empty: Array
    """[B, T]: S is empty."""

    @classmethod
    def of(cls, topk: TopK, *, sampled: bool = True) -> TopKSupport:
        """Return S without entries that lack a valid id or log-prob. Args: sampled: include the sampled token."""
        xp = topk.xp
        ids, logp = topk.ids, topk.logprobs
        if sampled:
            ids = xp.concatenate([ids, topk.sampled_ids[..., None]], -1)
            logp = xp.concatenate([logp, topk.sampled_logprobs[..., None]], -1)
        returned = (ids >= 0) & (ids < topk.vocabulary) & is_sound(logp)
        keys = xp.where(returned, ids, topk.vocabulary)
        order = keys.argsort(dim=-1, stable=True) if is_tensor(keys) else keys.argsort(-1, kind="stable")
        ids, logp, returned = (_gather(array, order) for array in (ids, logp, returned))
        is_repeated = ids != ids
        is_repeated[..., 1:] = ids[..., 1:] == ids[..., :-1]
        kept = xp.where(is_repeated, False, returned)
        # Ids are sorted, so the first entry is in S unless S is empty.
        first = xp.where(returned[..., :1], ids[..., :1], 0)
        logp = xp.where(kept, xp.at_most(logp, 0.0), 0.0)
        p = xp.where(kept, xp.exp(logp), 0.0)
        return cls(xp, xp.where(kept, ids, first), kept, logp, p, ~returned[..., 0])

    @property
    def mass(self) -> Array:
        """p_S, [B, T]."""
        return self.xp.sum(self.p, -1)


def lower_bounds(logits: CheckedLogits, *, target: str, topk: TopK) -> Array:
    """Return KL_S at counting tokens, float64 [B, T]; other entries are undefined.

    Args: target: the argument name of the logits of the trainer; topk: not rejected.
    Source: formulas, section 4.
    """
    xp = topk.xp
    with np.errstate(all="ignore"):
        support = TopKSupport.of(topk)
        # log q of S, [B, T, n], and 1 - q_S, which is summed outside S because 1 - sum would lose digits.
        log_q = xp.empty(support.ids.shape, "f8", logits.device)
        q_rest = xp.empty(logits.mask.shape, "f8", logits.device)
        for block in logits.blocks():
            q = Softmax.of(logits.read(target, block))
            ids = support.ids[block]
            log_q[block] = _gather(q.logits, ids) - xp.log(q.total)[..., None]
            q_rest[block] = xp.sum(_zero_at(q.weights, ids), -1) / q.total
        q_rest = xp.at_least(xp.where(support.is_empty, 1.0, q_rest), MIN_REST)
        p_rest = 1.0 - support.mass
        terms = xp.where(support.p > 0.0, support.p * (support.logp - log_q), 0.0)
        rest = xp.where(p_rest > NO_REST, p_rest * xp.log(p_rest / q_rest), -q_rest)
        return xp.at_least(xp.sum(terms, -1) + rest, 0.0)


def _gather(array: Array, indices: Array) -> Array:
    return array.gather(-1, indices) if is_tensor(array) else np.take_along_axis(array, indices, -1)


def _zero_at(weights: Array, ids: Array) -> Array:
    """Set the weights at the ids to 0 in place, and return them."""
    if is_tensor(weights):
        return weights.scatter_(-1, ids, 0.0)
    np.put_along_axis(weights, ids, 0.0, -1)
    return weights
