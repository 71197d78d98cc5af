"""The arrays [B, T] of a row as a trainer logs them, corrupted or not, and the product's signals of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trmon.domain.signals.run_features import columns_signals, staleness_lag
from trmon_client.core.bounds import engine_lag
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns
from trmon_research.language_like.policies import TokenLogprobs

Array = NDArray[Any]

CORRUPTIONS = ("shift", "order", "packed_order", "mask", "mask_mu", "zeros", "dropped_end", "sign", "log2")


@dataclass(slots=True, kw_only=True)
class Logged:
    """What is given to `columns`: log-probs and mask [B, T]; pi is None where the trainer gives two policies."""

    mu: Array
    old: Array
    pi: Array | None
    mask: Array

    @classmethod
    def of(cls, tokens: TokenLogprobs, lengths: Array, *, three: bool) -> Logged:
        """Return the tokens of all sequences as padded arrays, 0 beyond each length."""
        mask = np.arange(lengths.max()) < lengths[:, None]
        padded = np.zeros((3, *mask.shape), np.float32)
        padded[:, mask] = tokens.mu, tokens.old, tokens.pi
        return cls(mu=padded[0], old=padded[1], pi=padded[2] if three else None, mask=mask)


def corrupt(logged: Logged, how: str, *, share: float, rng: np.random.Generator) -> None:
    """Corrupt the log-probs of the engine in place.

    Args: how: of `CORRUPTIONS`; share: of tokens set to 0 ("zeros"), or of sequences that lose their end.
    """
    n, horizon = logged.mask.shape
    match how:
        case "shift":
            logged.mu = np.roll(logged.mu, 1, axis=1)
        case "order":
            logged.mu = logged.mu[rng.permutation(n)]
        case "packed_order":
            order = rng.permutation(n)
            logged.mu[logged.mask] = logged.mu[order][logged.mask[order]]
        case "mask":
            logged.mask = np.ones_like(logged.mask)
        case "mask_mu":
            padding = ~logged.mask
            scores = -rng.uniform(0.5, 12, int(padding.sum()))
            for trainer in (logged.old, logged.pi):
                if trainer is not None:
                    trainer[padding] = scores
            logged.mask = np.ones_like(logged.mask)
        case "zeros":
            logged.mu[rng.random(logged.mu.shape) < share] = 0.0
        case "dropped_end":
            lengths = logged.mask.sum(1)
            kept = np.where(rng.random(n) < share, (lengths * rng.uniform(0.4, 0.8, n)).astype(int), horizon)
            logged.mu[np.arange(horizon) >= kept[:, None]] = 0.0
        case "sign":
            logged.mu = -logged.mu
        case "log2":
            logged.mu = logged.mu / np.float32(np.log(2))
        case _:
            raise ValueError(f"corruption {how!r}; expected one of {CORRUPTIONS}")


def signals_of(logged: Logged | None, lengths: Array, **labels: Any) -> dict[str, float]:
    """Return a row's values from tokens: the product's signals, and the sizes of the batch.

    Args: logged: None where the trainer's log has no log-probs; labels: as for `columns`.
    """
    if logged is None:
        made = columns(mask=np.arange(lengths.max()) < lengths[:, None], **labels)
    else:
        made = columns(
            rollout_logprobs=logged.mu, old_logprobs=logged.old, logprobs=logged.pi, mask=logged.mask, **labels
        )
    values = columns_signals(made)
    values |= {"n_tokens": float(made["n_tokens"].sum()), "n_sequences": float(made.n_sequences)}
    if logged is not None:
        values |= _lags(made, values)
    return values


def _lags(made: Columns, values: dict[str, float]) -> dict[str, float]:
    lag = staleness_lag(made, version_lag=values.get("version_lag_max", np.nan))
    found = {"engine_lag": engine_lag(made), "staleness_lag": lag}
    return {name: value for name, value in found.items() if not np.isnan(value)}
