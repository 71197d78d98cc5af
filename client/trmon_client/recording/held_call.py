"""One call of `log_batch` that the recorder holds in memory."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, is_tensor
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.arrays.device_transfer import Transfer
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.optional_inputs import OptionalInputs
from trmon_client.core.policies.decision import Decision
from trmon_client.core.recording_format import LABELS, TURN_IDS, RecordedCall, RecordedText, SampleChoice

MAX_TEXT_LENGTH = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class HeldCall:
    """The entry of a call in the index, and copies of its arrays, which a device may still be filling."""

    entry: RecordedCall
    names: tuple[str, ...]
    transfer: Transfer
    size_bytes: int

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, numpy; waits for the device."""
        return dict(zip(self.names, self.transfer.wait(), strict=True))


def hold_call(entry: RecordedCall, inputs: CheckedInputs, *, verdict: Decision, token_ids: Any = None) -> HeldCall:
    """Return a call with copies of its arrays. Errors: ValueError if the token ids do not fit the log-probs."""
    given = {**inputs.logprobs, "mask": inputs.mask}
    given |= {name: array for name in LABELS if (array := getattr(inputs, name)) is not None}
    if inputs.turns is not None:
        given[TURN_IDS] = inputs.turns.ids
    if token_ids is not None:
        given["token_ids"] = _token_ids(inputs, token_ids)
    given["accepted"] = verdict.accepted
    copies = [_copy(array) for array in given.values()]
    texts = sum(len(sample.text) for sample in entry.texts)
    size_bytes = sum(math.prod(array.shape) * array.itemsize for array in copies) + texts
    return HeldCall(entry, tuple(given), Transfer.begin(copies), size_bytes)


def sample_texts(texts: Sequence[str], *, rewards: Any, step: int) -> tuple[RecordedText, ...]:
    """Return the texts of the best and the worst reward, if rewards are given, and of one at random, by the step."""
    chosen: dict[SampleChoice, int] = {}
    if not len(texts):
        return ()
    if rewards is not None:
        values = np.nan_to_num(np.asarray(to_computable(rewards, None), np.float64), nan=-np.inf)
        chosen = {"best": int(np.argmax(values)), "worst": int(np.argmin(values))}
    chosen["random"] = random.Random(step).randrange(len(texts))  # noqa: S311  no secret; leaves the shared generator
    return tuple(RecordedText(at, choice, str(texts[at])[:MAX_TEXT_LENGTH]) for choice, at in chosen.items())


def _token_ids(inputs: CheckedInputs, token_ids: Any) -> Array:
    shape = tuple(inputs.mask.shape)
    device = inputs.mask.device if is_tensor(inputs.mask) else None
    optional = OptionalInputs(shape, next(iter(inputs.logprobs), "mask"), inputs.layout, device)
    return optional.per_token("token_ids", token_ids, kinds="i")


def _copy(array: Array) -> Array:
    """Return an array that the trainer cannot change; numpy has no bfloat16."""
    if not is_tensor(array):
        return array.copy()
    return array.float() if str(array.dtype) == "torch.bfloat16" else array.detach()
