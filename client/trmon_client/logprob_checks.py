"""Checks of the given log-probs by value: those that never held a finite one, and other numbers in their place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.logprob_mistakes import LogprobMistake, mistake_in_range, unit_mistake
from trmon_client.core.reduction.sequences import SUM_SQ_LOGP
from trmon_client.core.reduction.token_terms import RATIOS, rollout_pair
from trmon_client.core.signals.batch_signals import unit_slope
from trmon_client.error_guard import ErrorGuard, WarnOnce

ROWS_AT_FIRST = 8
"""Rows of the first piece that is searched for a finite value; later pieces are larger."""


class GivenPolicies:
    """Drops arguments that have never held a finite value; once one has, its NaN are invalid log-probs.

    So a run whose weights turn NaN is told of it, and a trainer that passes NaN for a policy that it does not have gets
    the pairs of the others. On a device this is known only when the encoder's thread has read the values of an earlier
    call; until then every argument counts as given.
    """

    def __init__(self, warn_once: WarnOnce) -> None:
        self._warn_once = warn_once
        self._seen: frozenset[str] = frozenset()
        self._absent: frozenset[str] = frozenset()
        # Reentrant: a signal handler may call in the middle of a call.
        self._lock = threading.RLock()

    def select(self, inputs: CheckedInputs) -> tuple[CheckedInputs, dict[str, Any]]:
        """Return the inputs without the arguments that are not given, and finite values to `learn` from later.

        By the name of an argument that was never given, whether it has a finite value at a token that counts, and for
        `mask` whether any token counts: 0-d tensors on the device of the inputs. Nothing for inputs on the host.
        """
        unseen = [name for name in inputs.logprobs if name not in self._seen]
        values = {name: _has_finite(inputs.logprobs[name], inputs.mask) for name in unseen}
        if values:
            values["mask"] = inputs.mask.any()
        if not is_tensor(inputs.mask):
            self.learn(values)
            values = {}
        if self._absent.isdisjoint(inputs.logprobs):
            return inputs, values
        given = {name: array for name, array in inputs.logprobs.items() if name not in self._absent}
        return replace(inputs, logprobs=given), values

    def learn(self, values: Mapping[str, Any]) -> None:
        """Note which arguments are given. Args: values: of `select`, on the host."""
        finite = {name for name, is_finite in values.items() if is_finite}
        # Without a token that counts, nothing is known of any argument.
        absent = values.keys() - finite if "mask" in finite else set()
        with self._lock:
            self._seen |= finite
            self._absent = (self._absent | absent) - self._seen
        for name in absent:
            self._warn_once.warn(
                f"no value of {name}",
                f"{name}= holds no finite value at a token that counts, and is taken as not given until it does",
            )


def _has_finite(values: Array, mask: Array) -> Any:
    if is_tensor(values):
        return (values.detach().isfinite() & mask).any()
    start, stop = 0, ROWS_AT_FIRST
    while start < len(values):
        if (np.isfinite(values[start:stop]) & mask[start:stop]).any():
            return True
        start, stop = stop, 4 * stop
    return False


CHECKED_CALLS = 3
"""How many calls are checked for mistakes: they are there from the first one."""
ENOUGH_TOKENS = 64
"""Tokens, over the checked calls, from which the slope of one policy on the other tells its unit."""


class MistakeChecks:
    """Says once what the first calls pass in place of natural log-probs: negated ones, probabilities, another base.

    And that their masks leave no token.
    """

    def __init__(self, error_guard: ErrorGuard) -> None:
        self._error_guard = error_guard
        self._n_calls = 0
        self._sums: Counter[str] = Counter()
        self._n_tokens: list[int] = []

    def ranges(self, inputs: CheckedInputs) -> dict[str, Array]:
        """Return `token_ranges` of a call to be checked; nothing of later ones."""
        self._n_calls += 1
        return token_ranges(inputs) if self._n_calls <= CHECKED_CALLS else {}

    def see(self, ranges: Mapping[str, Any], columns: Columns) -> None:
        """Say what is found, from the encoder's thread. Args: ranges, columns: of a call, on the host."""
        sides: dict[LogprobMistake, list[str]] = {}
        for name, (least, largest) in ranges.items():
            if (mistake := mistake_in_range(least, largest)) is not None:
                sides.setdefault(mistake, []).append(f"{name}=")
        for mistake, names in sides.items():
            self._say(mistake, " and ".join(names))
        if ranges:
            self._see_mask(columns)
        if ranges and not sides:
            self._see_unit(columns)

    def _see_mask(self, columns: Columns) -> None:
        self._n_tokens.append(int(columns["n_tokens"].sum() + columns["n_invalid"].sum()))
        if len(self._n_tokens) == CHECKED_CALLS and not any(self._n_tokens):
            said = f"the masks of the first {CHECKED_CALLS} calls leave no token in the loss: 1 marks those that count"
            self._error_guard.warn_of_misuse("mask", said)

    def _see_unit(self, columns: Columns) -> None:
        if (pair := rollout_pair(columns.pairs)) is None:
            return
        above, below = RATIOS[pair]
        names = ("n_tokens", f"{pair}_sum_sq_d", SUM_SQ_LOGP[above], SUM_SQ_LOGP[below])
        self._sums.update({name: float(columns[name].sum()) for name in names})
        n, *squares = (self._sums[name] for name in names)
        found = unit_mistake(*unit_slope(*squares)) if n >= ENOUGH_TOKENS else None
        if found is not None:
            base, is_of_rollout = found
            self._say(LogprobMistake.UNIT, f"{below if is_of_rollout else above}=", base=base)

    def _say(self, mistake: LogprobMistake, side: str, *, base: str = "") -> None:
        self._error_guard.warn_of_misuse(mistake.value, f"{mistake.said_of(side, base=base)}. {mistake.fix}")


def token_ranges(inputs: CheckedInputs) -> dict[str, Array]:
    """Return the least and the largest value of each given policy over tokens that count, [2], by argument.

    They stay on the device of the inputs, without waiting for it; a batch without a position has none.
    """
    has_tokens = all(inputs.mask.shape)
    return {name: _range(values, inputs.mask) for name, values in inputs.logprobs.items() if has_tokens}


def _range(values: Array, mask: Array) -> Array:
    """Tokens that do not count, and NaN, are 0: no more than a probability and no less than any log-prob."""
    if is_tensor(values):
        import torch

        given = values.detach()
        on_device = torch.where(mask & (given == given), given, torch.zeros_like(given[:1, :1]))
        return torch.stack([on_device.min(), on_device.max()]).to(torch.float32)
    counted = np.where(mask & (values == values), values, 0.0)
    return np.array([counted.min(), counted.max()])
