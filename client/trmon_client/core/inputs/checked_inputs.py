"""The arguments of `log_batch` and `statistics.columns`: as given, and checked as [B, T] arrays with valid tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Arrays, dtype_kind, functions_of, is_tensor
from trmon_client.core.inputs.labels import OptionalInputs, TurnInputs, policy_version, read_turns
from trmon_client.core.inputs.tokens import InputLayout, device_of, read_token_inputs

POLICIES: tuple[str, ...] = ("rollout_logprobs", "old_logprobs", "logprobs")
"""The arguments that hold log-probs, in the order mu, pi_old, pi."""


@dataclass(frozen=True)
class CheckedInputs:
    """The checked arguments: log-probs [B, T] by argument name, mask bool [B, T]; the others [B] or [B, T] or None.

    Fewer than two log-probs have no pair: the sequences then have lengths, rewards and other labels only.
    `layout` is the layout in which the log-probs were given.
    """

    logprobs: dict[str, Array]
    mask: Array
    layout: InputLayout
    ref_logprobs: Array | None = None
    advantages: Array | None = None
    rewards: Array | None = None
    group_ids: Array | None = None
    versions: Array | None = None
    truncated: Array | None = None
    finish_reasons: Array | None = None
    """int64 [B]: the place in `labels.FINISH_REASONS`, -1 where it is unknown."""
    token_ids: Array | None = None
    trainer_version: int | None = None
    old_version: int | None = None
    turns: TurnInputs | None = None

    @property
    def functions(self) -> Arrays:
        """The array functions for these arrays."""
        return functions_of(self.mask)

    def blocks(self, *, max_tokens: int) -> Iterator[CheckedInputs]:
        """Yield blocks of at most `max_tokens` positions, or of one sequence."""
        n_sequences, horizon = self.mask.shape
        stride = max(1, max_tokens // max(1, horizon))
        if n_sequences <= stride:
            yield self
            return
        for start in range(0, n_sequences, stride):
            yield self.mapped(itemgetter(slice(start, start + stride)))

    def mapped(self, change: Callable[[Array], Array]) -> CheckedInputs:
        """Return the arguments with a function applied to each array."""
        given = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        return replace(
            self,
            logprobs={name: change(array) for name, array in self.logprobs.items()},
            **{name: change(array) for name, array in given.items()},
            turns=None if self.turns is None else self.turns.mapped(change),
        )


_ARRAYS = (
    *("mask", "ref_logprobs", "advantages", "rewards", "group_ids", "versions"),
    *("truncated", "finish_reasons", "token_ids"),
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GivenBatch:
    """The tensors of one call and what describes them, as `log_batch` and `statistics.columns` got them; unchecked.

    They document the shapes, of which everything but the log-probs and the mask may be absent.
    """

    rollout_logprobs: Any = None
    old_logprobs: Any = None
    logprobs: Any = None
    ref_logprobs: Any = None
    mask: Any = None
    cu_seqlens: Any = None
    advantages: Any = None
    rewards: Any = None
    group_ids: Any = None
    versions: Any = None
    truncated: Any = None
    finish_reasons: Any = None
    token_ids: Any = None
    trainer_version: Any = None
    old_version: Any = None
    turn_ids: Any = None
    turn_offsets: Any = None

    @classmethod
    def of(cls, names: Mapping[str, Any]) -> GivenBatch:
        """Return the batch among the local names of a function that takes its tensors."""
        return cls(**{name: names[name] for name in cls.__slots__})

    def checked(self) -> CheckedInputs:
        """Return the arguments as padded arrays on one device.

        Errors: ValueError naming the argument, its shape or dtype and the expected one.
        """
        given = {name: value for name in POLICIES if not _is_absent(value := getattr(self, name))}
        device = device_of({**given, "mask": self.mask})
        tokens = read_token_inputs(given, mask=self.mask, cu_seqlens=self.cu_seqlens, device=device)
        whole = tokens.mask
        optional = OptionalInputs(tuple(whole.shape), next(iter(given), "mask"), tokens.layout, device)
        counts = whole if dtype_kind(whole) == "b" else whole != 0
        ref, ids = self.ref_logprobs, self.token_ids
        inputs = CheckedInputs(
            logprobs=tokens.logprobs,
            mask=counts,
            layout=tokens.layout,
            ref_logprobs=None if ref is None else optional.per_token("ref_logprobs", ref, kinds="f"),
            advantages=optional.per_token("advantages", self.advantages, kinds="fib", or_sequence=True),
            rewards=optional.per_sequence("rewards", self.rewards, kinds="fib"),
            group_ids=optional.labels("group_ids", self.group_ids),
            versions=optional.per_token("versions", self.versions, kinds="i", or_sequence=True),
            truncated=optional.per_sequence("truncated", self.truncated, kinds="bi"),
            finish_reasons=optional.finish_reasons(self.finish_reasons),
            token_ids=None if ids is None else optional.per_token("token_ids", ids, kinds="i"),
            trainer_version=policy_version("trainer_version", self.trainer_version),
            old_version=policy_version("old_version", self.old_version),
            turns=read_turns(optional, turn_ids=self.turn_ids, turn_offsets=self.turn_offsets, mask=counts),
        )
        return inputs if whole.shape[1] else inputs.mapped(with_one_position)


def check_inputs(**given: Any) -> CheckedInputs:
    """Return the checked arguments of a `GivenBatch`, by name. Errors: ValueError, as for `GivenBatch.checked`."""
    return GivenBatch(**given).checked()


def _is_absent(logprobs: Any) -> bool:
    return logprobs is None or (
        isinstance(logprobs, (list, tuple)) and bool(logprobs) and all(row is None for row in logprobs)
    )


def with_one_position(array: Array) -> Array:
    """Return [B, 0] with one position that does not count, since reductions require one; [B] as it is."""
    if array.ndim == 1:
        return array
    shape = (array.shape[0], 1)
    return array.new_zeros(shape) if is_tensor(array) else np.zeros(shape, array.dtype)


MAX_LOGPROB = 1e-4
"""Above it a log-prob is not 0 up to rounding, but an impossible probability."""
MIN_LOGPROB = -1000.0
"""At or below it a log-prob is a sentinel."""


def valid_mask(**given: Any) -> Array:
    """Return where a token counts and no given log-prob is invalid, bool [B, T].

    Args: the log-probs and the mask, as for `statistics.columns`.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    Source: formulas, section 2.
    """
    return valid_tokens(check_inputs(**given))


def valid_tokens(inputs: CheckedInputs) -> Array:
    """Return the valid mask of checked arguments."""
    valid = inputs.mask
    for array in inputs.logprobs.values():
        # Half precision cannot represent the bounds.
        logp = array if array.itemsize >= 4 else inputs.functions.cast(array, "f4")
        valid = valid & is_sound(logp)
    return valid


def is_sound(logp: Array) -> Array:
    """Return where log-probs of at least single precision are within bounds; NaN compares false."""
    return (logp <= MAX_LOGPROB) & (logp > MIN_LOGPROB)
