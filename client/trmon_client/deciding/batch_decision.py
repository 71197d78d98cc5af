"""The decision that the trainer gets: which sequences of a call stay in the loss, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, functions_of, is_tensor, to_computable
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.tokens import InputLayout
from trmon_client.core.policies.decision import Decision, TurnDecision
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.token_decision import TokenDecision
from trmon_client.core.signals import batch_signals
from trmon_client.deciding.counted_tokens import CountedTokens, checked_on_read
from trmon_client.deciding.tensor_spec import TensorSpec
from trmon_client.deciding.token_mask import TokenMask
from trmon_client.deciding.trainer_advice import TrainerAdvice
from trmon_client.error_guard import ErrorGuard


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchDecision:
    """What one `log_batch` decided; neutral, with `verdict` None, where nothing was decided.

    Only `reasons`, `mask_rate` and `signals` wait for a device. `advice` is set on rank 0 only, and becomes None when
    the service has sent no newer advice for 100 steps. Masks have the kind and the device of the inputs.
    `tokens`: what the policy's token rules decided, in any mode, [B, T]; None without token rules.
    """

    spec: TensorSpec
    error_guard: ErrorGuard
    counted_tokens: Callable[[], CountedTokens]
    """Returns which tokens count. Errors: ValueError where the arguments of the call are no batch."""
    is_enforced: bool = False
    columns: Columns | None = None
    verdict: Decision | None = None
    tokens: TokenDecision | None = None
    advice: TrainerAdvice | None = None

    @classmethod
    def neutral(cls, arguments: Mapping[str, Any], *, error_guard: ErrorGuard) -> BatchDecision:
        """Return a decision that rejects nothing, for a call that decided nothing. Args: the call's, unchecked."""
        return cls(spec=TensorSpec.of(arguments), error_guard=error_guard, counted_tokens=checked_on_read(arguments))

    @cached_property
    def mask(self) -> Array:
        """[B] bool: which sequences stay in the loss; all true in observe mode, and where the client itself failed.

        Under a soft policy too these are the sequences within every bound, so that a loss that reads nothing else masks
        the others; `token_mask`, `weights` and `sequence_weights` soften.
        """
        return self.accepted if self.is_enforced else self.spec.all_true()

    @cached_property
    def accepted(self) -> Array:
        """[B] bool: what the policy decided, in any mode."""
        return self.spec.all_true() if self.verdict is None else self.spec.copy(self.verdict.accepted)

    @property
    def is_soft(self) -> bool:
        """Whether a soft policy is enforced: `weights` and `sequence_weights` hold more than `mask`."""
        return self._soft_weights is not None

    @cached_property
    def sequence_weights(self) -> Array:
        """[B] float32: each sequence's weight in the loss; that of `mask` unless a soft policy is enforced."""
        soft = self._soft_weights
        weights = self.mask if soft is None else soft
        return self.spec.to_inputs(functions_of(weights).cast(weights, "f4"))

    @property
    def _soft_weights(self) -> Array | None:
        return self.verdict.soft_weights if self.is_enforced and self.verdict is not None else None

    @property
    def policy(self) -> Policy | None:
        """The policy that decided, with its `name` and `hash`."""
        return None if self.verdict is None else self.verdict.policy

    @property
    def reasons(self) -> list[str | None] | None:
        """[B] the statistic that failed first, None where accepted."""
        verdict = self.verdict
        return None if verdict is None else self.error_guard.guard(lambda: verdict.reasons, otherwise=None)

    @property
    def turns(self) -> TurnDecision | None:
        """What the policy's turn criteria decided, in any mode; None without turn criteria."""
        return None if self.verdict is None else self.verdict.turns

    @property
    def mask_rate(self) -> float:
        """rejected/(accepted + rejected), empty sequences left out; NaN where nothing was decided."""
        verdict = self.verdict
        return math.nan if verdict is None else self.error_guard.guard(lambda: verdict.mask_rate, otherwise=math.nan)

    @cached_property
    def signals(self) -> dict[str, float]:
        """The signals of this call's sequences, by name, computed when first read."""
        columns = self.columns
        return {} if columns is None else self.error_guard.guard(lambda: batch_signals.compute(columns), otherwise={})

    @property
    def token_mask(self) -> Any | None:
        """Which tokens stay in the loss, bool, in the layout of the log-probs; the trainer's own mask in observe mode.

        Computed when this or `weights` is first read. None where the arguments of `log_batch` are no batch.
        """
        found = self._token_mask
        return None if found is None else found.mask

    @property
    def weights(self) -> Any | None:
        """Each token's weight in the loss, float32: 0 where `token_mask` is false, 1 in observe and without rules."""
        found = self._token_mask
        return None if found is None else found.weights

    @cached_property
    def _token_mask(self) -> TokenMask | None:
        return self.error_guard.guard(self._read_token_mask, otherwise=None)

    def _read_token_mask(self) -> TokenMask:
        if not self.is_enforced or self.verdict is None:
            return TokenMask.unchanged(self.spec, self.counted_tokens())
        counted = self.counted_tokens()
        kept = None
        if self.verdict.turns is not None and counted.turns is not None:
            kept = self.verdict.turns.kept_tokens(counted.turns.rows())
        tokens = counted if self.tokens is None else self.tokens
        return TokenMask.enforced(
            self.spec, self.verdict.accepted, tokens=tokens, kept=kept, soft_weights=self._soft_weights
        )

    def clean(self, mu: Any, pi: Any) -> Any:
        """Return mu with pi, detached, in the rows without weight in the loss: their gradients become 0, never NaN.

        Args: mu, pi: rollout and current log-probs in the layout that `log_batch` got; mu is unchanged in observe mode.
        """
        if not self.is_enforced:
            return mu
        return self.error_guard.guard(
            lambda: _clean(
                self.sequence_weights > 0 if self.is_soft else self.mask, mu, pi, layout=self.counted_tokens().layout
            ),
            otherwise=mu,
        )


def _clean(mask: Array, mu: Any, pi: Any, *, layout: InputLayout) -> Any:
    if layout.is_packed:
        sequences = np.repeat(np.arange(len(mask)), layout.lengths or ())
        return _where(mask[to_computable(sequences, mask.device if is_tensor(mask) else None)], mu, pi)
    if isinstance(mu, (list, tuple)):
        return [_where(accepted, *rows) for accepted, *rows in zip(mask, mu, pi, strict=True)]
    return _where(mask[:, None], mu, pi)


def _where(accepted: Any, mu: Any, pi: Any) -> Any:
    if not is_tensor(mu):
        return np.where(accepted, mu, pi)
    import torch

    return torch.where(accepted, mu, pi.detach().to(mu.dtype))
