"""Certified lower bounds of KL from the top-k log-probs of the rollout engine, and when they must be refused.

Coarsening both distributions to {each v in S, the rest} can only lower their KL (data processing), so that a few
log-probs of mu prove that a token drifted at least so far. S is the returned top-k and the sampled token, once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays, functions_of, is_tensor
from trmon_client.core.divergence.blockwise import Softmax
from trmon_client.core.inputs.logits import CheckedLogits
from trmon_client.core.inputs.token_validity import is_sound
from trmon_client.core.reduction.kl_estimators import MIN_REST, NO_REST

MAX_DISAGREEMENT = 1e-3
"""Nats between the two log-probs that the engine gave the sampled token; beyond it they are not of one softmax."""
RENORMALISED_WITHIN = 1e-5
RENORMALISED_SHARE = 0.99
"""Where the top-k's probabilities sum to 1, within the former, at more than this share of tokens, they were normalised
over k for all that can be known; a token that an engine spoilt must not hide the others."""


@dataclass(frozen=True)
class TopK:
    """What the engine returned: ids and log-probs [B, T, k], and the sampled token's [B, T]; in one place."""

    ids: Array
    logprobs: Array
    sampled_ids: Array
    sampled_logprobs: Array
    vocabulary: int

    @property
    def xp(self) -> Arrays:
        """The array functions that work on these."""
        return functions_of(self.ids)

    def is_refused(self, mask: Array) -> bool:
        """Return whether these are no log-probs of mu's softmax over the whole vocabulary; waits for a device.

        They disagree with the sampled token's, sum to more than 1, or to 1 at nearly every token though k < V: a batch
        whose top-k truly hold all the mass cannot be told from a renormalised one, and is refused too.
        Source: formulas, section 4.
        """
        xp = self.xp
        of_sampled = (self.ids == self.sampled_ids[..., None]) & is_sound(self.logprobs)
        with np.errstate(all="ignore"):
            apart = xp.abs(self.logprobs - self.sampled_logprobs[..., None]) > MAX_DISAGREEMENT
            impossible = (mask & (TopKSupport.of(self).mass > 1.0 + MAX_DISAGREEMENT)).any()
            whole = xp.abs(TopKSupport.of(self, sampled=False).mass - 1.0) <= RENORMALISED_WITHIN
        disagrees = (of_sampled & apart & mask[..., None]).any()
        renormalised = (whole & mask).sum() > RENORMALISED_SHARE * mask.sum()
        return bool(disagrees | impossible | (renormalised & (self.ids.shape[-1] < self.vocabulary)))


@dataclass(frozen=True)
class TopKSupport:
    """S at every token: its ids and mu's log-probs and probabilities [B, T, n], each token of S in it once.

    Where `kept` is unset the entry is a duplicate or was not returned: its probability is 0, its id is another entry's.
    """

    xp: Arrays
    ids: Array
    kept: Array
    logp: Array
    p: Array
    is_empty: Array
    """[B, T]: S has no token."""

    @classmethod
    def of(cls, topk: TopK, *, sampled: bool = True) -> TopKSupport:
        """Return S; entries without a valid id and log-prob are left to the rest. Args: sampled: S has that token."""
        xp = topk.xp
        ids, logp = topk.ids, topk.logprobs
        if sampled:
            ids = _beside(ids, topk.sampled_ids)
            logp = _beside(logp, topk.sampled_logprobs)
        returned = (ids >= 0) & (ids < topk.vocabulary) & is_sound(logp)
        order = _stable_order(xp.where(returned, ids, topk.vocabulary))
        ids, logp, returned = (_take(array, order) for array in (ids, logp, returned))
        kept = xp.where(_is_repeated(ids), False, returned)
        # Sorted, so that the first entry is one of S unless S is empty.
        first = xp.where(returned[..., :1], ids[..., :1], 0)
        logp = xp.where(kept, xp.at_most(logp, 0.0), 0.0)
        p = xp.where(kept, xp.exp(logp), 0.0)
        return cls(xp, xp.where(kept, ids, first), kept, logp, p, ~returned[..., 0])

    @property
    def mass(self) -> Array:
        """p_S, [B, T]."""
        return self.xp.sum(self.p, -1)


def lower_bounds(logits: CheckedLogits, *, target: str, topk: TopK) -> Array:
    """Return KL_S at every token that counts, float64 [B, T]; elsewhere anything.

    Args: target: the name of the training engine's logits; topk: not refused.
    Source: formulas, section 4.
    """
    xp = topk.xp
    with np.errstate(all="ignore"):
        chosen = TopKSupport.of(topk)
        log_q, q_rest = _seen_by(logits, target=target, chosen=chosen)
        q_rest = xp.at_least(xp.where(chosen.is_empty, 1.0, q_rest), MIN_REST)
        p_rest = 1.0 - chosen.mass
        terms = xp.where(chosen.p > 0.0, chosen.p * (chosen.logp - log_q), 0.0)
        rest = xp.where(p_rest > NO_REST, p_rest * xp.log(p_rest / q_rest), -q_rest)
        return xp.at_least(xp.sum(terms, -1) + rest, 0.0)


def _seen_by(logits: CheckedLogits, *, target: str, chosen: TopKSupport) -> tuple[Array, Array]:
    """Return q's log-probs of S, float64 [B, T, n], and 1 - q_S, summed outside S: 1 - sum would lose what is small."""
    log_q = chosen.xp.empty(chosen.ids.shape, "f8", logits.device)
    rest = chosen.xp.empty(logits.mask.shape, "f8", logits.device)
    for block in logits.blocks():
        q = Softmax.of(logits.read(target, block))
        ids = chosen.ids[block]
        log_q[block] = _take(q.logits, ids) - chosen.xp.log(q.total)[..., None]
        rest[block] = chosen.xp.sum(_without(q.weights, ids), -1) / q.total
    return log_q, rest


def _is_repeated(sorted_ids: Array) -> Array:
    repeated = sorted_ids != sorted_ids
    repeated[..., 1:] = sorted_ids[..., 1:] == sorted_ids[..., :-1]
    return repeated


def _beside(array: Array, column: Array) -> Array:
    if is_tensor(array):
        return functions_of(array).concatenate([array, column[..., None]], -1)
    return np.concatenate([array, column[..., None]], -1)


def _stable_order(keys: Array) -> Array:
    return keys.argsort(dim=-1, stable=True) if is_tensor(keys) else keys.argsort(-1, kind="stable")


def _take(array: Array, indices: Array) -> Array:
    return array.gather(-1, indices) if is_tensor(array) else np.take_along_axis(array, indices, -1)


def _without(weights: Array, ids: Array) -> Array:
    """Return the weights, 0 at the ids; in place."""
    if is_tensor(weights):
        return weights.scatter_(-1, ids, 0.0)
    np.put_along_axis(weights, ids, 0.0, -1)
    return weights
