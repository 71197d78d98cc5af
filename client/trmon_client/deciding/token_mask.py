"""Which tokens stay in the loss and with what weight, in the layout, kind and place of the trainer's log-probs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trmon_client.core.arrays import Array, functions_of
from trmon_client.core.inputs.tokens import InputLayout
from trmon_client.core.policies.token_decision import TokenDecision
from trmon_client.deciding.counted_tokens import CountedTokens
from trmon_client.deciding.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class TokenMask:
    """In the layout of the log-probs: mask, bool; weights, float32, 0 where `mask` is false."""

    mask: Any
    weights: Any

    @classmethod
    def unchanged(cls, spec: TensorSpec, counted: CountedTokens) -> TokenMask:
        """Return the trainer's own mask, with weight 1 for every token that counts."""
        # A copy: it may share the memory of the trainer's own mask.
        mask = counted.mask & True
        return cls._in_layout(spec, mask, functions_of(mask).cast(mask, "f4"), layout=counted.layout)

    @classmethod
    def enforced(
        cls,
        spec: TensorSpec,
        accepted: Array,
        *,
        tokens: CountedTokens | TokenDecision,
        kept: Array | None = None,
        soft_weights: Array | None = None,
    ) -> TokenMask:
        """Return the tokens of accepted sequences that stay in the loss, and their weights.

        Args: accepted: [B] bool; tokens: the decision of the policy's token rules, or the tokens that count where
        the policy has none; kept: [B, T] bool, the tokens of no rejected turn, None if no turn is rejected;
        soft_weights: [B], those of a soft policy, which replace `accepted`.
        """
        mask = tokens.mask
        weights = tokens.weights if isinstance(tokens, TokenDecision) else functions_of(mask).cast(mask, "f4")
        xp = functions_of(weights)
        in_loss = accepted[:, None] if soft_weights is None else soft_weights[:, None] > 0
        kept = in_loss if kept is None else in_loss & kept
        if soft_weights is not None:
            weights = weights * xp.cast(soft_weights, "f4")[:, None]
        weights = xp.where(kept, weights, 0.0)
        return cls._in_layout(spec, mask & kept, weights, layout=tokens.layout)

    @classmethod
    def _in_layout(cls, spec: TensorSpec, mask: Array, weights: Array, *, layout: InputLayout) -> TokenMask:
        return cls(spec.to_inputs(layout.restored(mask)), spec.to_inputs(layout.restored(weights)))
