"""Divergences of two policies: exact from their logits, or certified lower bounds from the engine's top-k.

Both return the divergence columns of a batch, which `with_divergences` adds to those of `statistics.columns`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from trmon_client.core.arrays.backend import Array, functions_of, is_tensor
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS
from trmon_client.core.divergence import blockwise, topk_certificate
from trmon_client.core.divergence.logit_sources import common_device, logit_source
from trmon_client.core.divergence.streaming import StreamedLogits
from trmon_client.core.divergence.token_divergences import reduce_divergences
from trmon_client.core.divergence.vocabulary_shards import VocabularyShards
from trmon_client.core.inputs.logits import CheckedLogits, check_logits, per_token, target

Backend = Literal["blocks", "triton"]
"""The implementation of exact divergences: numpy or torch block by block, or a Triton kernel on device tensors."""


def exact(
    *,
    rollout_logits: Any,
    logits: Any = None,
    old_logits: Any = None,
    mask: Any,
    support: Any = None,
    tv: bool = False,
    sum_pi_squared: bool = False,
    backend: Backend = "blocks",
) -> Columns:
    """Return the exact divergence columns of B sequences, with O(tokens) memory and one block beside the logits.

    Args: rollout_logits, and either logits (pi; the pair is total) or old_logits (pi_old; mismatch): [B, T, V] torch
        or numpy of any floating dtype and strides, temperature applied. A probability below 1e-308 is 0.
        mask: [B, T], nonzero where a token is valid, see `token_validity.valid_mask`.
        support: bool [V] or [B, T, V], outside which neither policy has mass; tv: also total variation.
        sum_pi_squared: also the trainer's sum over the vocabulary of squared probabilities, for `signals` of gradients.
        backend: "triton" takes device tensors, not float64; in rare cases it is accurate only to 1e-6 absolute, a
        probability below 1e-38 is 0, and a logit of -1e30 or less is -inf.
    Returns: numpy columns, or torch columns on the device of CUDA tensors without a synchronisation, in nats.
        `n_tokens` counts the mask; KL is +inf where mu has mass outside the other's support, NaN where a logit is NaN.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, section 4.
    """
    name, trainer_logits, pair = target(logits=logits, old_logits=old_logits)
    compute = _implementation(backend, sum_pi_squared=sum_pi_squared)
    inputs = check_logits({"rollout_logits": rollout_logits, name: trainer_logits}, mask=mask, support=support)
    divergences = compute(inputs, rollout="rollout_logits", target=name, tv=tv)
    return reduce_divergences(divergences, mask=inputs.mask, kl_is="exact", kl_pair=pair)


def exact_streamed(
    *,
    rollout_logits: Any,
    logits: Any = None,
    old_logits: Any = None,
    mask: Any,
    group: Any = None,
    tv: bool = False,
    sum_pi_squared: bool = False,
) -> Columns:
    """Return the columns of `exact` from tiles: of hidden states, or of a vocabulary that the ranks of a group share.

    Args: rollout_logits, and either logits or old_logits: `HiddenStates`, or logits [B, T, V]; mask: [B, T].
        group: a torch.distributed group whose ranks call together with the same mask, each with its own disjoint part
        of the vocabulary, of any size. They exchange ten float64 numbers a token once, and one more for tv.
        tv: also total variation, by a second pass, which projects hidden states again.
    Returns: as `exact`, the same on every rank.
    Errors: ValueError naming the argument, its shape or dtype and the expected one, before ranks exchange anything.
    Source: formulas, section 4.
    """
    name, trainer_logits, pair = target(logits=logits, old_logits=old_logits)
    sources = {
        key: logit_source(key, given) for key, given in (("rollout_logits", rollout_logits), (name, trainer_logits))
    }
    rollout, trainer = sources.values()
    if rollout.shape != trainer.shape:
        raise ValueError(f"{name} has logits of shape {trainer.shape}; expected {rollout.shape} like rollout_logits")
    device = common_device(sources)
    counts = per_token("mask", mask, shape=rollout.shape[:2], device=device, kinds="bif") != 0
    streamed = StreamedLogits(rollout, trainer, counts, device)
    divergences = streamed.divergences(VocabularyShards(group), tv=tv, pi_squared=sum_pi_squared)
    return reduce_divergences(divergences, mask=counts, kl_is="exact", kl_pair=pair)


def topk_lower_bound(
    *,
    topk_ids: Any,
    topk_logprobs: Any,
    rollout_logprobs: Any,
    logits: Any = None,
    old_logits: Any = None,
    token_ids: Any,
    mask: Any,
) -> Columns:
    """Return certified lower bounds of each token's KL as `max_kl`, `sum_kl`, `argmax_kl` and `n_unbounded`.

    Args: topk_ids, topk_logprobs: [B, T, k] from the rollout engine, log-probs of its softmax over the whole
        vocabulary at the temperature of the logits; entries with an invalid id or log-prob count as absent.
        rollout_logprobs, token_ids: [B, T], of the sampled tokens; logits, old_logits, mask: as for `exact`.
    Returns: columns with kl_is "lower_bound". If the log-probs are renormalised over k or disagree with
        rollout_logprobs: kl_is "sampled" and no KL, as without top-k. This check waits for a device.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, section 4.
    """
    name, trainer_logits, pair = target(logits=logits, old_logits=old_logits)
    inputs = check_logits({name: trainer_logits}, mask=mask)
    topk = _topk(inputs, ids=topk_ids, logprobs=topk_logprobs, sampled_ids=token_ids, sampled_logprobs=rollout_logprobs)
    if topk.is_rejected(inputs.mask):
        return Columns({"n_tokens": functions_of(inputs.mask).sum(inputs.mask, -1)}, kl_is="sampled")
    bounds = topk_certificate.lower_bounds(inputs, target=name, topk=topk)
    return reduce_divergences({"kl": bounds}, mask=inputs.mask, kl_is="lower_bound", kl_pair=pair)


def with_divergences(columns: Columns, divergences: Columns) -> Columns:
    """Return the columns together with the divergence columns of the same sequences, on the device of the columns.

    Args: columns: from `statistics.columns`; divergences: from `exact` or `topk_lower_bound`, over the same tokens.
    Errors: ValueError if the numbers of sequences differ.
    """
    if columns.n_sequences != divergences.n_sequences:
        raise ValueError(f"divergences has {divergences.n_sequences} sequences; expected {columns.n_sequences}")
    n_tokens = columns["n_tokens"]
    device = n_tokens.device if is_tensor(n_tokens) else None
    by_name = {**{name: to_computable(array, device) for name, array in divergences.items()}, **columns.by_name}
    ordered = {name: by_name[name] for name in COLUMNS if name in by_name}
    return replace(columns, by_name=ordered, kl_is=divergences.kl_is, kl_pair=divergences.kl_pair)


def _implementation(backend: Backend, *, sum_pi_squared: bool) -> Any:
    if backend == "blocks":
        return partial(blockwise.blockwise_divergences, pi_squared=sum_pi_squared)
    if backend != "triton":
        raise ValueError(f"backend is {backend!r}; expected 'blocks' or 'triton'")
    if sum_pi_squared:
        raise ValueError("sum_pi_squared needs backend='blocks'; the Triton kernel does not sum squares")
    from trmon_client.core.divergence import triton_kernel

    return triton_kernel.triton_divergences


def _topk(
    inputs: CheckedLogits, *, ids: Any, logprobs: Any, sampled_ids: Any, sampled_logprobs: Any
) -> topk_certificate.TopK:
    device, shape = inputs.device, tuple(inputs.mask.shape)
    if getattr(logprobs, "itemsize", 8) < 4:
        raise ValueError(
            f"topk_logprobs has dtype {logprobs.dtype}; expected float32 or float64: half precision proves nothing"
        )
    ids = per_token("topk_ids", ids, shape=(*shape, _n_returned(ids)), device=device, kinds="i")
    logprobs = per_token("topk_logprobs", logprobs, shape=tuple(ids.shape), device=device, kinds="f")
    cast = functions_of(inputs.mask).cast
    return topk_certificate.TopK(
        ids=cast(ids, "i8"),
        logprobs=cast(logprobs, "f8"),
        sampled_ids=cast(per_token("token_ids", sampled_ids, shape=shape, device=device, kinds="i"), "i8"),
        sampled_logprobs=cast(
            per_token("rollout_logprobs", sampled_logprobs, shape=shape, device=device, kinds="f"), "f8"
        ),
        vocabulary=inputs.vocabulary,
    )


def _n_returned(ids: Array) -> int:
    return int(ids.shape[-1]) if getattr(ids, "ndim", 0) == 3 else 1
