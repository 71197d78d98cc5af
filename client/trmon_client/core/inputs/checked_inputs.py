"""The arguments of `statistics.columns`, checked and brought to one form: padded [B, T] arrays in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import (
    Array,
    Arrays,
    Device,
    argument_to_computable,
    dtype_kind,
    functions_of,
    is_tensor,
)
from trmon_client.core.inputs import packed
from trmon_client.core.inputs.group_labels import group_labels
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.inputs.ragged import is_ragged, pad_rows, to_rows
from trmon_client.core.inputs.token_inputs import device_of, read_token_inputs

POLICIES: tuple[str, ...] = ("rollout_logprobs", "old_logprobs", "logprobs")
"""The arguments that hold log-probs, in the order mu, pi_old, pi."""


@dataclass(frozen=True)
class CheckedInputs:
    """The checked arguments: log-probs [B, T] by argument name, mask bool [B, T]; the others [B] or [B, T] or None.

    `form` is that of the log-probs as they were given.
    """

    logprobs: dict[str, Array]
    mask: Array
    form: InputLayout
    advantages: Array | None = None
    rewards: Array | None = None
    group_ids: Array | None = None
    versions: Array | None = None

    @property
    def functions(self) -> Arrays:
        """The array functions that work on these."""
        return functions_of(self.mask)

    def blocks(self, *, max_tokens: int) -> Iterator[CheckedInputs]:
        """Yield the same sequences in blocks of rows of at most `max_tokens` positions, one row at least."""
        n_sequences, horizon = self.mask.shape
        stride = max(1, max_tokens // max(1, horizon))
        if n_sequences <= stride:
            yield self
            return
        for start in range(0, n_sequences, stride):
            yield self.mapped(itemgetter(slice(start, start + stride)))

    def mapped(self, change: Callable[[Array], Array]) -> CheckedInputs:
        """Return the same arguments with every array changed."""
        others = ("mask", "advantages", "rewards", "group_ids", "versions")
        given = {name: array for name in others if (array := getattr(self, name)) is not None}
        return replace(
            self,
            logprobs={name: change(array) for name, array in self.logprobs.items()},
            **{name: change(array) for name, array in given.items()},
        )


def check_inputs(
    logprobs: dict[str, Any],
    *,
    mask: Any,
    cu_seqlens: Any = None,
    advantages: Any = None,
    rewards: Any = None,
    group_ids: Any = None,
    versions: Any = None,
) -> CheckedInputs:
    """Return the arguments as `Inputs`.

    Args: logprobs: what was given for each of `POLICIES`, None where nothing; the others as `statistics.columns` has.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    given = {name: logprobs[name] for name in POLICIES if logprobs.get(name) is not None}
    if len(given) < 2:
        got = f"only {next(iter(given))}" if given else "none of them"
        raise ValueError(f"at least two of {', '.join(POLICIES)} are needed; got {got}")
    device = device_of({**given, "mask": mask})
    tokens = read_token_inputs(given, mask=mask, cu_seqlens=cu_seqlens, device=device)
    whole = tokens.mask
    optional = _Optional(tuple(whole.shape), next(iter(given)), tokens.form, device)
    inputs = CheckedInputs(
        logprobs=tokens.logprobs,
        mask=whole if dtype_kind(whole) == "b" else whole != 0,
        form=tokens.form,
        advantages=optional.per_token("advantages", advantages, kinds="fib"),
        rewards=optional.per_sequence("rewards", rewards, kinds="fib"),
        group_ids=optional.labels("group_ids", group_ids),
        versions=optional.per_token("versions", versions, kinds="i"),
    )
    return inputs if whole.shape[1] else _widened(inputs)


@dataclass(frozen=True)
class _Optional:
    """Checks arguments that may be absent against the shape and the form of the first log-probs."""

    shape: tuple[int, ...]
    like: str
    form: InputLayout
    device: Device

    def per_sequence(self, name: str, value: Any, *, kinds: str) -> Array | None:
        if value is None:
            return None
        return self._check(name, argument_to_computable(name, value, self.device), [self.shape[:1]], kinds)

    def per_token(self, name: str, value: Any, *, kinds: str) -> Array | None:
        if value is None:
            return None
        lengths = list(self.form.lengths or ())
        if self.form.is_packed:
            array = self._check(
                name, argument_to_computable(name, value, self.device), [self.shape[:1], (sum(lengths),)], kinds
            )
            # A number a sequence, where there are as many sequences as tokens.
            return array if len(array) == self.shape[0] else packed.pad_packed(array, lengths=lengths)
        if self.form.lengths is not None and is_ragged(value):
            array = pad_rows(name, to_rows(name, value, self.device), like=(self.like, lengths))
        else:
            array = argument_to_computable(name, value, self.device)
        return self._check(name, array, [self.shape[:1], self.shape], kinds)

    def labels(self, name: str, value: Any) -> Array | None:
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and value and is_tensor(value[0]):
            value = argument_to_computable(name, value, self.device)
        shape = tuple(value.shape) if hasattr(value, "shape") else (len(value),) if hasattr(value, "__len__") else ()
        if shape != self.shape[:1]:
            raise ValueError(f"{name} has shape {shape}; expected {self.shape[:1]}, one label a sequence")
        return group_labels(value, self.device)

    def _check(self, name: str, array: Array, shapes: list[tuple[int, ...]], kinds: str) -> Array:
        if tuple(array.shape) not in shapes:
            expected = " or ".join(str(shape) for shape in shapes)
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {expected} like {self.like}")
        # Without elements there is nothing to misread, and an empty list has no dtype of its own.
        if dtype_kind(array) not in kinds and 0 not in array.shape:
            expected = "an integer dtype" if kinds == "i" else "a real dtype"
            raise ValueError(f"{name} has dtype {array.dtype}; expected {expected}")
        # What is on a device is not waited for.
        if not is_tensor(array) and array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
            raise ValueError(f"{name} has {array.max()}; expected integers below 2**63")
        return array


def _widened(inputs: CheckedInputs) -> CheckedInputs:
    """Return inputs of [B, 0] with one position that does not count: reductions need one."""

    def widen(array: Array) -> Array:
        if array.ndim == 1:
            return array
        shape = (array.shape[0], 1)
        return array.new_zeros(shape) if is_tensor(array) else np.zeros(shape, array.dtype)

    return inputs.mapped(widen)
