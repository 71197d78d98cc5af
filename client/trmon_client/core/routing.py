"""Routing of mixtures of experts: which tokens meet other experts in training than in the rollout, and their load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, argument_to_computable, devices_of, is_tensor


@dataclass(frozen=True, slots=True, eq=False)
class RouterFlips:
    """The flips of N tokens in L layers: numpy arrays, nan where nothing counts.

    `by_layer` [L] is the share of the tokens that flip in a layer; `by_token`, in the shape of the tokens, the share of
    a token's layers that flip; `rate` is the share of all pairs of token and layer, the scalar `router_flip_rate`;
    `token_rate` is the share of tokens that flip in any layer; `n_routings` counts the pairs.
    """

    by_layer: Array
    by_token: Array
    rate: float
    token_rate: float
    n_routings: int

    def scalars(self, *, layers: bool = False) -> dict[str, float]:
        """Return what `log_scalars` takes: the rate and that of the worst layer. Args: layers: also that of each."""
        each = {f"router_flip_layer_{i}": float(rate) for i, rate in enumerate(self.by_layer)} if layers else {}
        known = self.by_layer[~np.isnan(self.by_layer)]
        worst = float(known.max()) if known.size else math.nan
        return {"router_flip_rate": self.rate, "router_flip_layer_max": worst, **each}


def flips(rollout_ids: Any, train_ids: Any, *, mask: Any = None) -> RouterFlips:
    """Return where the set of a token's top-k experts differs; the order within the set does not matter.

    Args: rollout_ids, train_ids: integers [..., L, k], torch or numpy, in the same order of tokens; a routing with a
    negative id on either side does not count. mask: [...], nonzero where a token counts; None counts all.
    Errors: ValueError naming the argument and its shape.
    Source: "about 10% of routers select other experts" counts as `rate` does: R3, arXiv 2510.11370; formulas, section
    11.
    """
    device = next(iter(devices_of((rollout_ids, train_ids))), None)
    rollout, train = (
        _checked(name, argument_to_computable(name, ids, device))
        for name, ids in (("rollout_ids", rollout_ids), ("train_ids", train_ids))
    )
    if rollout.shape != train.shape:
        raise ValueError(
            f"train_ids has shape {tuple(train.shape)}; expected that of rollout_ids, {tuple(rollout.shape)}"
        )
    differs = _on_host((_sorted(rollout) != _sorted(train)).any(-1))
    known = _on_host(((rollout >= 0) & (train >= 0)).all(-1)) & _counted(mask, differs.shape[:-1])[..., None]
    flipped = differs & known
    layers, tokens = tuple(range(flipped.ndim - 1)), known.any(-1)
    n_routings, n_tokens = int(known.sum()), int(tokens.sum())
    with np.errstate(invalid="ignore"):
        return RouterFlips(
            by_layer=flipped.sum(layers) / known.sum(layers),
            by_token=np.asarray(flipped.sum(-1) / known.sum(-1)),
            rate=int(flipped.sum()) / n_routings if n_routings else math.nan,
            token_rate=int(flipped.any(-1).sum()) / n_tokens if n_tokens else math.nan,
            n_routings=n_routings,
        )


def _checked(name: str, ids: Array) -> Array:
    is_integer = not ids.dtype.is_floating_point if is_tensor(ids) else ids.dtype.kind in "iu"
    if ids.ndim < 2 or not is_integer:
        raise ValueError(f"{name} has shape {tuple(ids.shape)} and dtype {ids.dtype}; expected integers [..., L, k]")
    return ids


def _counted(mask: Any, shape: tuple[int, ...]) -> Array:
    if mask is None:
        return np.ones(shape, bool)
    counted = _on_host(argument_to_computable("mask", mask, None)) != 0
    if counted.shape != shape:
        raise ValueError(f"mask has shape {counted.shape}; expected that of the tokens, {shape}")
    return np.asarray(counted)


def _sorted(ids: Array) -> Array:
    return ids.sort(-1).values if is_tensor(ids) else np.sort(ids, -1)


def _on_host(values: Array) -> Array:
    return values.cpu().numpy() if is_tensor(values) else values


def max_vio(expert_ids: Any, *, n_experts: int, mask: Any = None) -> float:
    """Return the largest violation of a balanced load over all layers: 0 when balanced, n_experts/k - 1 at most.

    Args: expert_ids: integers [..., L, k], torch or numpy; negative ids do not count. mask: [...], nonzero where a
    token counts; None counts all.
    Returns: max over layers of (max_i load_i)/(mean load) - 1; nan without a routing.
    Errors: ValueError naming the argument that is out of range.
    Source: Wang et al. 2024, arXiv 2408.15664, MaxVio, of each layer; formulas, section 11.
    """
    ids = _checked("expert_ids", argument_to_computable("expert_ids", expert_ids, None))
    if int(ids.max(initial=-1)) >= n_experts:
        raise ValueError(f"expert_ids holds {ids.max()}; expected ids below n_experts, {n_experts}")
    ids = ids[_counted(mask, ids.shape[:-2])]
    ids = ids.reshape(-1, *ids.shape[-2:])
    violations = [_violation(ids[:, layer], n_experts) for layer in range(ids.shape[1])]
    known = [violation for violation in violations if not math.isnan(violation)]
    return max(known, default=math.nan)


def _violation(ids: np.ndarray[Any, Any], n_experts: int) -> float:
    loads = np.bincount(ids[ids >= 0].astype(np.int64), minlength=n_experts)
    total = int(loads.sum())
    return float(loads.max() * n_experts / total - 1) if total else math.nan
