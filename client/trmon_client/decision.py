"""The decision that the trainer gets: which sequences of a call may teach, and why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trmon_client.core import acceptance, signals
from trmon_client.core.acceptance import Policy
from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.columns import Columns
from trmon_client.likeness import Likeness
from trmon_client.surface import Surface


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """What one `log_batch` decided; neutral, with `verdict` None, where nothing was decided.

    Nothing synchronises with a device but `reasons`, `mask_rate` and `signals`. `advice` is rank 0's only.
    Masks have the kind and the device of the inputs.
    """

    like: Likeness
    surface: Surface
    is_enforced: bool = False
    columns: Columns | None = None
    verdict: acceptance.Decision | None = None
    advice: Mapping[str, Any] | None = None

    @cached_property
    def mask(self) -> Array:
        """[B] bool: which sequences may teach; all true in observe, and where the client itself failed."""
        return self.accepted if self.is_enforced else self.like.all_true()

    @cached_property
    def accepted(self) -> Array:
        """[B] bool: what the policy decided, in any mode."""
        return self.like.all_true() if self.verdict is None else self.like.copy(self.verdict.accepted)

    @property
    def policy(self) -> Policy | None:
        """The policy that decided, with its `name` and `hash`."""
        return None if self.verdict is None else self.verdict.policy

    @property
    def reasons(self) -> list[str | None] | None:
        """[B] the statistic that failed first, None where accepted."""
        verdict = self.verdict
        return None if verdict is None else self.surface.guard(lambda: verdict.reasons, otherwise=None)

    @property
    def mask_rate(self) -> float:
        """rejected/(accepted + rejected), empty sequences left out; NaN where nothing was decided."""
        verdict = self.verdict
        return math.nan if verdict is None else self.surface.guard(lambda: verdict.mask_rate, otherwise=math.nan)

    @cached_property
    def signals(self) -> dict[str, float]:
        """The signals of this call's sequences, by name, computed when first read."""
        columns = self.columns
        return {} if columns is None else self.surface.guard(lambda: signals.compute(columns), otherwise={})

    @property
    def token_mask(self) -> Array | None:
        """None: no policy of this version masks single tokens."""
        return None

    @property
    def weights(self) -> Array | None:
        """None: no policy of this version weights tokens."""
        return None

    def clean(self, mu: Any, pi: Any) -> Any:
        """Return mu with pi, detached, in the rows that `mask` rejects: their gradients become 0, never NaN.

        Args: mu, pi: [B, T] rollout and current log-probs, or lists of B 1-D arrays; a no-op in observe.
        """
        if not self.is_enforced:
            return mu
        return self.surface.guard(lambda: _clean(self.mask, mu, pi), otherwise=mu)


def _clean(mask: Array, mu: Any, pi: Any) -> Any:
    if isinstance(mu, (list, tuple)):
        return [_where(accepted, *rows) for accepted, *rows in zip(mask, mu, pi, strict=True)]
    return _where(mask[:, None], mu, pi)


def _where(accepted: Any, mu: Any, pi: Any) -> Any:
    if not is_tensor(mu):
        return np.where(accepted, mu, pi)
    import torch

    return torch.where(accepted, mu, pi.detach().to(mu.dtype))
