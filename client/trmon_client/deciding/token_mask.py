"""Teaching: which tokens may teach and with what weight, in the form, kind and place of the trainer's log-probs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, check_inputs
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.policies.token_decision import TokenDecision
from trmon_client.deciding.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class TokenMask:
    """Of the form of the log-probs: mask, bool; weights, float32, 0 where `mask` is unset."""

    mask: Any
    weights: Any

    @classmethod
    def unchanged(cls, like: TensorSpec) -> TokenMask:
        """Return that every token that counts teaches with weight 1."""
        inputs = _inputs(like)
        # A copy: it may share the memory of the trainer's own mask.
        mask = inputs.mask & True
        return cls._of(like, mask, inputs.functions.cast(mask, "f4"), form=inputs.form)

    @classmethod
    def enforced(cls, like: TensorSpec, accepted: Array, *, tokens: TokenDecision | None) -> TokenMask:
        """Return that tokens of accepted sequences teach, and of those what the policy's token rules let.

        Args: accepted: [B] bool; tokens: what the token rules decided, None without any.
        """
        if tokens is None:
            inputs = _inputs(like)
            mask, weights, form = inputs.mask, inputs.functions.cast(inputs.mask, "f4"), inputs.form
        else:
            mask, weights, form = tokens.mask, tokens.weights, tokens.form
        teaches = accepted[:, None]
        return cls._of(like, mask & teaches, functions_of(weights).where(teaches, weights, 0.0), form=form)

    @classmethod
    def _of(cls, like: TensorSpec, mask: Array, weights: Array, *, form: InputLayout) -> TokenMask:
        return cls(like.own(form.restored(mask)), like.own(form.restored(weights)))


def _inputs(like: TensorSpec) -> CheckedInputs:
    logps = {name: like.tokens[name] for name in POLICIES}
    return check_inputs(logps, mask=like.tokens["mask"], cu_seqlens=like.tokens["cu_seqlens"])
