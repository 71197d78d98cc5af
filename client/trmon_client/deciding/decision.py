"""The decision that the trainer gets: which sequences of a call may teach, and why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, is_tensor, to_computable
from trmon_client.core.columns.columns import Columns
from trmon_client.core.inputs.packed import lengths_of
from trmon_client.core.policies import acceptance
from trmon_client.core.policies.acceptance import Policy
from trmon_client.core.policies.token_decision import TokenDecision
from trmon_client.core.signals import batch_signals
from trmon_client.deciding.tensor_spec import TensorSpec
from trmon_client.deciding.token_mask import TokenMask
from trmon_client.safety.error_guard import ErrorGuard


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchDecision:
    """What one `log_batch` decided; neutral, with `verdict` None, where nothing was decided.

    Nothing synchronises with a device but `reasons`, `mask_rate` and `signals`. `advice` is rank 0's only, and None
    again where the service gave no newer for 100 steps.
    Masks have the kind and the device of the inputs. `tokens`: what the policy's token rules decided, in any mode,
    [B, T]; None without any.
    """

    like: TensorSpec
    surface: ErrorGuard
    is_enforced: bool = False
    columns: Columns | None = None
    verdict: acceptance.Decision | None = None
    tokens: TokenDecision | None = None
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
        return {} if columns is None else self.surface.guard(lambda: batch_signals.compute(columns), otherwise={})

    @property
    def token_mask(self) -> Any | None:
        """Which tokens may teach, bool, of the form of the log-probs; the trainer's own mask in observe.

        The arguments of `log_batch` are read once more, when this or `weights` is first read. None where they are
        no batch.
        """
        teaching = self._teaching
        return None if teaching is None else teaching.mask

    @property
    def weights(self) -> Any | None:
        """With what weight tokens may teach, float32: 0 where `token_mask` is unset, 1 in observe and without rules."""
        teaching = self._teaching
        return None if teaching is None else teaching.weights

    @cached_property
    def _teaching(self) -> TokenMask | None:
        verdict, like = self.verdict, self.like
        if not self.is_enforced or verdict is None:
            return self.surface.guard(lambda: TokenMask.unchanged(like), otherwise=None)
        return self.surface.guard(
            lambda: TokenMask.enforced(like, verdict.accepted, tokens=self.tokens), otherwise=None
        )

    def clean(self, mu: Any, pi: Any) -> Any:
        """Return mu with pi, detached, in the rows that `mask` rejects: their gradients become 0, never NaN.

        Args: mu, pi: rollout and current log-probs in the form that `log_batch` had them; a no-op in observe.
        """
        if not self.is_enforced:
            return mu
        return self.surface.guard(lambda: _clean(self.mask, mu, pi, cu_seqlens=self.like.cu_seqlens), otherwise=mu)


def _clean(mask: Array, mu: Any, pi: Any, *, cu_seqlens: Any) -> Any:
    if cu_seqlens is not None:
        sequences = np.repeat(np.arange(len(mask)), lengths_of(cu_seqlens))
        return _where(mask[to_computable(sequences, mask.device if is_tensor(mask) else None)], mu, pi)
    if isinstance(mu, (list, tuple)):
        return [_where(accepted, *rows) for accepted, *rows in zip(mask, mu, pi, strict=True)]
    return _where(mask[:, None], mu, pi)


def _where(accepted: Any, mu: Any, pi: Any) -> Any:
    if not is_tensor(mu):
        return np.where(accepted, mu, pi)
    import torch

    return torch.where(accepted, mu, pi.detach().to(mu.dtype))
