"""The decision that the trainer gets: which sequences of a call stay in the loss, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trmon_client.active_policies import TrainerAdvice
from trmon_client.core.arrays import Array, Device, functions_of, is_tensor, to_computable
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, GivenBatch
from trmon_client.core.inputs.labels import TurnInputs
from trmon_client.core.inputs.tokens import InputLayout
from trmon_client.core.policies.decision import Decision, TurnDecision
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.token_decision import TokenDecision
from trmon_client.core.signals import batch_signals
from trmon_client.error_guard import ErrorGuard


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """Everything that is computed from the arrays of one call: the statistics and the decision."""

    inputs: CheckedInputs
    finite: Mapping[str, Any]
    """See `GivenPolicies.select`."""
    ranges: Mapping[str, Array]
    """See `token_ranges`; empty once they have been looked at often enough."""
    columns: Columns
    verdict: Decision
    tokens: TokenDecision | None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The number of sequences, B, and the device of the trainer's tensors; None for numpy."""

    n_sequences: int
    device: Device

    @classmethod
    def of(cls, tensors: GivenBatch) -> TensorSpec:
        """Return the spec of tensors that need not be valid; B is 0 where none has a length."""
        shaped_alike = (tensors.logprobs, tensors.old_logprobs, tensors.rollout_logprobs, tensors.mask)
        given = [value for value in shaped_alike if value is not None]
        n_offsets = None if tensors.cu_seqlens is None else _length(tensors.cu_seqlens)
        return cls(n_offsets - 1 if n_offsets else _first_length(given), _first_device(given))

    def all_true(self) -> Array:
        """Return [B] true."""
        if self.device is None:
            return np.ones(self.n_sequences, bool)
        import torch

        # Not made from the inputs: nested, sharded and sparse tensors refuse, or give one of their own kind.
        return torch.ones(self.n_sequences, dtype=torch.bool, device=self.device)

    def copy(self, accepted: Array) -> Array:
        """Return booleans [B] as an array of their own."""
        if is_tensor(accepted):
            return accepted.clone()
        if self.device is None:
            return accepted.copy()
        import torch

        return torch.tensor(accepted, dtype=torch.bool, device=self.device)

    def to_inputs(self, array: Array | list[Array]) -> Array | list[Array]:
        """Return an array, or a list of rows, in the kind and on the device of the inputs."""
        if isinstance(array, list):
            return [self.to_inputs(row) for row in array]
        if self.device is None or is_tensor(array):
            return array
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _first_length(values: list[Any]) -> int:
    lengths = map(_length, values)
    return next((length for length in lengths if length is not None), 0)


def _first_device(values: list[Any]) -> Device:
    rows = (value[0] if isinstance(value, (list, tuple)) and value else value for value in values)
    return next((row.device for row in rows if is_tensor(row)), None)


def _length(value: Any) -> int | None:
    try:
        return int(value.size(0)) if is_tensor(value) else len(value)
    except (TypeError, IndexError, RuntimeError):
        return None


@dataclass(frozen=True, slots=True)
class CountedTokens:
    """The trainer's mask, bool [B, T], the layout in which the trainer passed it, and the turns if given."""

    mask: Array
    layout: InputLayout
    turns: TurnInputs | None = None

    @classmethod
    def of(cls, inputs: CheckedInputs) -> CountedTokens:
        """Return the mask, the layout and the turns of checked arguments."""
        return cls(inputs.mask, inputs.layout, inputs.turns)


def checked_on_read(tensors: GivenBatch) -> Callable[[], CountedTokens]:
    """Return a function that checks the tensors when it is called, for calls that decide nothing.

    It keeps the tensors without their autograd graphs, which would live as long as the decision.
    """
    tokens = {name: _detached(getattr(tensors, name)) for name in (*POLICIES, "mask", "cu_seqlens")}
    return lambda: CountedTokens.of(GivenBatch(**tokens).checked())


def _detached(value: Any) -> Any:
    """Return an argument without its autograd graph; None where detaching fails."""
    if isinstance(value, (list, tuple)):
        is_of_numbers = not value or isinstance(value[0], (float, int))
        return value if is_of_numbers else [_detached(row) for row in value]
    # Detaching each of a thousand rows costs milliseconds, and most have no graph.
    if not (getattr(value, "requires_grad", False) and is_tensor(value)):
        return value
    try:
        return value.detach()
    except (TypeError, RuntimeError):
        return None


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
    def neutral(cls, tensors: GivenBatch, *, error_guard: ErrorGuard) -> BatchDecision:
        """Return a decision that rejects nothing, for a call that decided nothing."""
        return cls(spec=TensorSpec.of(tensors), error_guard=error_guard, counted_tokens=checked_on_read(tensors))

    def __repr__(self) -> str:
        """Return one line that waits for no device: a notebook would print every column."""
        return f"<BatchDecision of {self.spec.n_sequences} sequences: {self._summary}>"

    @property
    def _summary(self) -> str:
        if self.verdict is None:
            return "nothing decided"
        accepted, mode = self.verdict.accepted, "enforced" if self.is_enforced else "observed"
        on_device = is_tensor(accepted) and accepted.device.type != "cpu"
        rejected = "decided" if on_device else f"{len(accepted) - int(accepted.sum())} rejected"
        return f"{rejected} by {self.verdict.policy.name}, {mode}"

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
        return self._token_mask[0]

    @property
    def weights(self) -> Any | None:
        """Each token's weight in the loss, float32: 0 where `token_mask` is false, 1 in observe and without rules."""
        return self._token_mask[1]

    @cached_property
    def _token_mask(self) -> tuple[Any | None, Any | None]:
        return self.error_guard.guard(self._read_token_mask, otherwise=(None, None))

    def _read_token_mask(self) -> tuple[Any, Any]:
        """Return mask, bool, and weights, float32, 0 where the mask is false, in the layout of the log-probs."""
        counted = self.counted_tokens()
        if not self.is_enforced or self.verdict is None:
            # A copy: it may share the memory of the trainer's own mask.
            mask = counted.mask & True
            return self._in_layout(mask, functions_of(mask).cast(mask, "f4"), layout=counted.layout)
        rules, soft = self.tokens, self._soft_weights
        mask, layout = (counted.mask, counted.layout) if rules is None else (rules.mask, rules.layout)
        weights = functions_of(mask).cast(mask, "f4") if rules is None else rules.weights
        xp = functions_of(weights)
        # The weights of a soft policy take the place of what is accepted.
        kept = self.verdict.accepted[:, None] if soft is None else soft[:, None] > 0
        if self.verdict.turns is not None and counted.turns is not None:
            kept = kept & self.verdict.turns.kept_tokens(counted.turns.rows())
        if soft is not None:
            weights = weights * xp.cast(soft, "f4")[:, None]
        return self._in_layout(mask & kept, xp.where(kept, weights, 0.0), layout=layout)

    def _in_layout(self, *arrays: Array, layout: InputLayout) -> tuple[Any, Any]:
        mask, weights = (self.spec.to_inputs(layout.restored(array)) for array in arrays)
        return mask, weights

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
