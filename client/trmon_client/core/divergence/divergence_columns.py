"""Divergences of two policies: exact from their logits, or certified lower bounds from the engine's top-k.

Both return the divergence columns of a batch, which `with_divergences` adds to those of `statistics.columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from trmon_client.core.arrays import Array, Device, functions_of, is_tensor, to_computable
from trmon_client.core.column_schema import COLUMNS, KlIs, Pair, Reduction
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import topk_certificate
from trmon_client.core.divergence.logits import (
    BLOCK_ELEMENTS,
    GAP_SIDES,
    KL_PAIRS,
    ROLLOUT,
    CheckedLogits,
    LogitSource,
    check_logits,
    common_device,
    logit_source,
    per_token,
    trainer_sides,
    variations_of,
)
from trmon_client.core.divergence.vocabulary_sums import DivergenceSums, Softmax, VocabularyShards
from trmon_client.core.inputs.checked_inputs import with_one_position
from trmon_client.core.kernel_launches import imported

REDUCTIONS: dict[str, tuple[str, ...]] = {
    "kl": ("max", "sum", "argmax"),
    "reverse_kl": ("max", "sum"),
    "tv": ("max", "sum"),
    **dict.fromkeys(GAP_SIDES, ("max", "sum")),
    "entropy_rollout": ("sum",),
    "entropy": ("sum",),
    "pi_squared": ("sum",),
}
"""The reductions of each quantity; a column is named `<reduction>_<quantity>`."""


def quantities_of(variations: Iterable[str], *, pi_squared: bool) -> tuple[str, ...]:
    """Return the quantities to compute, in the order of `REDUCTIONS`. Args: variations: the total variations."""
    left_out = {"tv", *GAP_SIDES, "pi_squared"} - {*variations, *(("pi_squared",) if pi_squared else ())}
    return tuple(quantity for quantity in REDUCTIONS if quantity not in left_out)


def reduce_divergences(by_quantity: dict[str, Array], *, mask: Array, kl_is: KlIs, kl_pair: Pair) -> Columns:
    """Return the divergence columns, and `n_tokens`, the number of tokens in the mask.

    Args: by_quantity: float64 [B, T] by the names of `REDUCTIONS`, at least KL; mask: bool [B, T].
    Returns: columns in the order of the schema; NaN at a counting token propagates to its sequence.
    Source: formulas, section 4.
    """
    if not mask.shape[1]:
        mask = with_one_position(mask)
        by_quantity = {quantity: with_one_position(array) for quantity, array in by_quantity.items()}
    xp = functions_of(mask)
    found = {"n_tokens": xp.sum(mask, -1), "n_unbounded": xp.sum(mask & (by_quantity["kl"] == np.inf), -1)}
    for quantity, array in by_quantity.items():
        for reduction in REDUCTIONS[quantity]:
            found[f"{reduction}_{quantity}"] = _reduce(array, mask=mask, name=f"{reduction}_{quantity}")
    with np.errstate(all="ignore"):
        by_name = {name: xp.cast(found[name], spec.dtype) for name, spec in COLUMNS.items() if name in found}
    return Columns(by_name, kl_is=kl_is, kl_pair=kl_pair)


def _reduce(array: Array, *, mask: Array, name: str) -> Array:
    xp = functions_of(mask)
    spec = COLUMNS[name]
    if spec.reduction is Reduction.SUM:
        return xp.sum(xp.where(mask, array, 0.0), -1)
    counting = xp.where(mask, array, -np.inf)
    if spec.reduction is Reduction.MAX:
        return xp.max(counting, -1)
    return xp.where(xp.sum(mask, -1) > 0, xp.argmax(counting, -1), int(spec.identity))


def blockwise_divergences(
    logits: CheckedLogits, *, target: str, variations: Mapping[str, tuple[str, str]], pi_squared: bool = False
) -> dict[str, Array]:
    """Return the divergences at counting tokens, float64 [B, T] by quantity; other entries are undefined.

    Args: target: the argument of the trainer's logits whose divergences from mu's are computed; variations: those of
        each total variation; pi_squared: also the trainer's sum of squared probabilities.
    Source: formulas, section 4.
    """
    quantities = quantities_of(variations, pi_squared=pi_squared)
    empty = functions_of(logits.mask).empty
    found = {quantity: empty(logits.mask.shape, "f8", logits.device) for quantity in quantities}
    with np.errstate(all="ignore"):
        for block in logits.blocks():
            policies = {name: Softmax.of(logits.read(name, block)) for name in logits.by_name}
            computed = DivergenceSums.of(policies[ROLLOUT], policies[target], squares=pi_squared).divergences()
            for quantity, sides in variations.items():
                p, q = (policies[name] for name in sides)
                computed[quantity] = p.xp.sum(p.xp.abs(p.probabilities() - q.probabilities()), -1) / 2
            for quantity, array in found.items():
                array[block] = to_computable(computed[quantity], logits.device)
    return found


HOST_TILE = (256, 4096)
"""Tokens and logits of a tile on the host: 4 MiB of float32 a policy, a few large matrix products."""
DEVICE_TILE = (1024, 4096)
"""The same on a device."""


@dataclass(frozen=True)
class StreamedLogits:
    """The logits of mu and of the trainer, read in tiles; mask bool [B, T], numpy or on the device."""

    rollout: LogitSource
    target: LogitSource
    mask: Array
    device: Device

    def divergences(self, shards: VocabularyShards, *, tv: bool, pi_squared: bool) -> dict[str, Array]:
        """Return the divergences at counting tokens, float64 [B, T] by quantity; other entries are undefined.

        Source: formulas, section 4.
        """
        with np.errstate(all="ignore"):
            sums = shards.merged(self._sums(squares=pi_squared))
            found = sums.divergences()
            if tv:
                # Of this part of the vocabulary, which is read again; NaN where a policy has no distribution.
                halves = 0.0 * sums.p.total
                for positions in self._positions():
                    for start, a, b in self._blocks(positions):
                        block = slice(start, start + a.shape[0])
                        whole = DivergenceSums.of_arrays([array[block] for array in sums.arrays()])
                        halves[block] += whole.half_distance(a, b)
                found["tv"] = shards.added(halves)
        quantities = quantities_of(("tv",) if tv else (), pi_squared=pi_squared)
        return {name: found[name].reshape(self.mask.shape) for name in quantities}

    def _sums(self, *, squares: bool) -> DivergenceSums:
        """Return the sums over this process's part of the vocabulary, [B T] each."""
        n_tokens = self.mask.shape[0] * self.mask.shape[1]
        empty = functions_of(self.mask).empty
        arrays = [empty((n_tokens,), "f8", self.device) for _ in range(N_SUMS)]
        for positions in self._positions():
            merged: dict[int, DivergenceSums] = {}
            for start, a, b in self._blocks(positions):
                part = DivergenceSums.of(Softmax.of(a), Softmax.of(b), squares=squares)
                merged[start] = DivergenceSums.merged((merged[start], part)) if start in merged else part
            for start, sums in merged.items():
                for array, computed in zip(arrays, sums.arrays(), strict=True):
                    array[start : start + computed.shape[0]] = computed
        return DivergenceSums.of_arrays(arrays)

    def _positions(self) -> Iterator[slice]:
        """Yield the positions of tiles; the host skips those without a counting token."""
        counts = self.mask.reshape(-1)
        n, _ = HOST_TILE if self.device is None else DEVICE_TILE
        for start in range(0, counts.shape[0], n):
            positions = slice(start, start + n)
            if self.device is not None or counts[positions].any():
                yield positions

    def _blocks(self, positions: slice) -> Iterator[tuple[int, Array, Array]]:
        """Yield the first position and the float64 logits of both policies of blocks that stay in the host's cache."""
        n_rows, n = DEVICE_TILE if self.device is not None else (BLOCK_ELEMENTS // HOST_TILE[1], HOST_TILE[1])
        for begin in range(0, self.rollout.shape[-1], n):
            vocabulary = slice(begin, begin + n)
            a, b = (source.tile(positions, vocabulary, self.device) for source in (self.rollout, self.target))
            cast = functions_of(a).cast
            for row in range(0, a.shape[0], n_rows):
                rows = slice(row, row + n_rows)
                yield positions.start + row, cast(a[rows], "f8"), cast(b[rows], "f8")


N_SUMS = 10
"""The numbers of a token that ranks exchange: five of each policy."""


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
        or numpy of any floating dtype and strides, temperature applied. A probability below 1e-308 is 0. With both the
        pair is total, and the total variations of both gaps, mismatch and staleness, come too.
        mask: [B, T], nonzero where a token is valid, see `checked_inputs.valid_mask`.
        support: bool [V] or [B, T, V], outside which neither policy has mass; tv: also total variation.
        sum_pi_squared: also the trainer's sum over the vocabulary of squared probabilities, for `signals` of gradients.
        backend: "triton" takes device tensors, not float64; in rare cases it is accurate only to 1e-6 absolute, a
        probability below 1e-38 is 0, and a logit of -1e30 or less is -inf.
    Returns: numpy columns, or torch columns on the device of CUDA tensors without a synchronisation, in nats.
        `n_tokens` counts the mask; KL is +inf where mu has mass outside the other's support, NaN where a logit is NaN.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, section 4.
    """
    sides = trainer_sides(logits=logits, old_logits=old_logits)
    compute = _implementation(backend, sum_pi_squared=sum_pi_squared)
    inputs = check_logits({ROLLOUT: rollout_logits, **sides}, mask=mask, support=support)
    target = next(iter(sides))
    divergences = compute(inputs, target=target, variations=variations_of(inputs.by_name, tv=tv))
    return reduce_divergences(divergences, mask=inputs.mask, kl_is="exact", kl_pair=KL_PAIRS[target])


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

    Args: rollout_logits, and logits, old_logits or both: `HiddenStates`, or logits [B, T, V]; mask: [B, T]. For both,
        each gap is read and exchanged as the first pair is.
        group: a torch.distributed group whose ranks call together with the same mask, each with its own disjoint part
        of the vocabulary, of any size. They exchange ten float64 numbers a token once, and one more for tv.
        tv: also total variation, by a second pass, which projects hidden states again.
    Returns: as `exact`, the same on every rank.
    Errors: ValueError naming the argument, its shape or dtype and the expected one, before ranks exchange anything.
    Source: formulas, section 4.
    """
    sides = trainer_sides(logits=logits, old_logits=old_logits)
    sources = {name: logit_source(name, given) for name, given in {ROLLOUT: rollout_logits, **sides}.items()}
    shape = sources[ROLLOUT].shape
    for name, source in sources.items():
        if source.shape != shape:
            raise ValueError(f"{name} has logits of shape {source.shape}; expected {shape} like {ROLLOUT}")
    device = common_device(sources)
    counts = per_token("mask", mask, shape=shape[:2], device=device, kinds="bif") != 0
    shards, target = VocabularyShards(group), next(iter(sides))
    streamed = StreamedLogits(sources[ROLLOUT], sources[target], counts, device)
    divergences = streamed.divergences(shards, tv=tv, pi_squared=sum_pi_squared)
    for quantity, (first, second) in variations_of(sources, tv=False).items():
        gap = StreamedLogits(sources[first], sources[second], counts, device)
        divergences[quantity] = gap.divergences(shards, tv=True, pi_squared=False)["tv"]
    return reduce_divergences(divergences, mask=counts, kl_is="exact", kl_pair=KL_PAIRS[target])


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
    sides = trainer_sides(logits=logits, old_logits=old_logits)
    if len(sides) > 1:
        raise ValueError("top-k log-probs bound the KL of one pair; expected logits or old_logits, got both")
    (name,) = sides
    inputs = check_logits(sides, mask=mask)
    topk = _topk(inputs, ids=topk_ids, logprobs=topk_logprobs, sampled_ids=token_ids, sampled_logprobs=rollout_logprobs)
    if topk.is_rejected(inputs.mask):
        return Columns({"n_tokens": functions_of(inputs.mask).sum(inputs.mask, -1)}, kl_is="sampled")
    bounds = topk_certificate.lower_bounds(inputs, target=name, topk=topk)
    return reduce_divergences({"kl": bounds}, mask=inputs.mask, kl_is="lower_bound", kl_pair=KL_PAIRS[name])


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
        return partial(blockwise_divergences, pi_squared=sum_pi_squared)
    if backend != "triton":
        raise ValueError(f"backend is {backend!r}; expected 'blocks' or 'triton'")
    if sum_pi_squared:
        raise ValueError("sum_pi_squared needs backend='blocks'; the Triton kernel does not sum squares")
    return imported("trmon_client.core.divergence.triton_kernel").triton_divergences


def _topk(
    inputs: CheckedLogits, *, ids: Any, logprobs: Any, sampled_ids: Any, sampled_logprobs: Any
) -> topk_certificate.TopK:
    device, shape = inputs.device, tuple(inputs.mask.shape)
    if getattr(logprobs, "itemsize", 8) < 4:
        raise ValueError(
            f"topk_logprobs has dtype {logprobs.dtype}; expected float32 or float64: half precision proves nothing"
        )
    n_returned = int(ids.shape[-1]) if getattr(ids, "ndim", 0) == 3 else 1
    ids = per_token("topk_ids", ids, shape=(*shape, n_returned), device=device, kinds="i")
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
