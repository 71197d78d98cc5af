"""Replay of recordings: columns, decisions and worst tokens, computed again from recorded tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.analysis.distribution import WorstToken, worst_tokens
from trmon.domain.batches.assembly import merge_columns
from trmon.domain.errors import InvalidInput
from trmon.domain.signals.run_features import columns_signals
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, check_inputs, valid_tokens
from trmon_client.core.policies.decision import SEMANTICS_VERSION, decide
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_decision import apply_token_rules_to_inputs
from trmon_client.core.recording_format import LABELS, TURN_IDS, RecordedCall
from trmon_client.core.reduction.token_terms import RATIOS
from trmon_client.core.statistics import columns_of_inputs

SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordedTokens:
    """A recorded call with its arrays by name, the rank that made it, and the semantics of its decision."""

    rank: int
    call: RecordedCall
    arrays: Mapping[str, Any]
    semantics: int = SEMANTICS_VERSION


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplayedCall:
    """The columns of a call, the decision on each sequence, [B] bool, and its worst tokens on the primary pair.

    `n_differing`: sequences that were decided otherwise then; None where that is not comparable, and `why` says why.
    """

    recorded: RecordedTokens
    columns: Columns
    accepted: Any
    n_differing: int | None
    why: str
    worst: tuple[WorstToken, ...]


def replay_call(recorded: RecordedTokens, *, n_worst: int) -> ReplayedCall:
    """Return a call computed again. Errors: InvalidInput naming the file if it has no valid arrays or policy."""
    call, arrays = recorded.call, recorded.arrays
    try:
        inputs = check_inputs(
            **{name: arrays[name] for name in (*POLICIES, "mask", *LABELS, TURN_IDS) if name in arrays},
            trainer_version=call.trainer_version,
            old_version=call.old_version,
        )
        policy = Policy.parse(call.policy)
        columns = columns_of_inputs(inputs)
        verdict = decide(columns, policy)
    except (ValueError, PolicyError) as error:
        raise InvalidInput(call.file, str(error)) from error
    if policy.tokens and columns.pairs:
        columns = apply_token_rules_to_inputs(policy, inputs).attached_to(columns)
    why = _incomparable(recorded, n_sequences=len(verdict.accepted))
    return ReplayedCall(
        recorded=recorded,
        columns=columns,
        accepted=verdict.accepted,
        n_differing=None if why else int(np.sum(verdict.accepted != arrays["accepted"])),
        why=why,
        worst=_worst(columns, inputs, token_ids=arrays.get("token_ids"), n=n_worst),
    )


def _incomparable(recorded: RecordedTokens, *, n_sequences: int) -> str:
    accepted = recorded.arrays.get("accepted")
    if accepted is None or len(accepted) != n_sequences:
        return "the decision was not recorded"
    if recorded.semantics != SEMANTICS_VERSION:
        return f"decided by semantics {recorded.semantics}; this version has {SEMANTICS_VERSION}"
    if recorded.call.kl_is != SAMPLED:
        return "logits were given, which are not recorded"
    return ""


def _worst(columns: Columns, inputs: CheckedInputs, *, token_ids: Any, n: int) -> tuple[WorstToken, ...]:
    if columns.primary is None:
        return ()
    above, below = (inputs.logprobs[name].astype(np.float64) for name in RATIOS[columns.primary])
    sequences, positions = np.nonzero(valid_tokens(inputs))
    at = sequences, positions
    found = worst_tokens(below[at], above[at], sequences=sequences, positions=positions, n=n)
    if token_ids is None or np.ndim(token_ids) != 2:
        return found
    return tuple(replace(token, token_id=int(token_ids[token.sequence, token.position])) for token in found)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplayedUpdate:
    """All recorded calls of a step and update, with the signals of their sequences together."""

    step: int
    update: int | None
    calls: tuple[ReplayedCall, ...]
    columns: Columns
    signals: dict[str, float]
    n_rejected: int

    @property
    def n_sequences(self) -> int:
        """The number of sequences, empty ones included."""
        return self.columns.n_sequences

    @property
    def n_differing(self) -> int:
        """How many sequences were decided otherwise then, as far as that is comparable."""
        return sum(call.n_differing or 0 for call in self.calls)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why decisions are not comparable, without duplicates."""
        return tuple(dict.fromkeys(call.why for call in self.calls if call.why))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedToken:
    """A token of a recording, and the call that it is of; `text` is that of its sequence, if it was recorded."""

    rank: int
    step: int
    update: int | None
    chunk: int
    token: WorstToken
    text: str | None


class SequenceOrder(Enum):
    """Which recorded sequences are the worst: the mean |d| is largest, the reward least, or most tokens are in it."""

    DRIFT = "drift"
    REWARD = "reward"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSequence:
    """A sequence of a recording, the call that it is of, and its text, if that was recorded.

    `mean_abs_d` is of the primary pair, in nats a token; it and `reward` are NaN where they are not known.
    """

    rank: int
    step: int
    update: int | None
    chunk: int
    sequence: int
    n_tokens: int
    reward: float
    mean_abs_d: float
    accepted: bool
    text: str | None


def worst_sequences(updates: Iterable[ReplayedUpdate], *, by: SequenceOrder, n: int) -> tuple[RecordedSequence, ...]:
    """Return the worst sequences of updates, the worst first; those whose value is not known come last."""
    keys: Mapping[SequenceOrder, Callable[[RecordedSequence], float]] = {
        SequenceOrder.DRIFT: lambda one: -one.mean_abs_d,
        SequenceOrder.REWARD: lambda one: one.reward,
        SequenceOrder.LENGTH: lambda one: -one.n_tokens,
    }
    found = [one for update in updates for call in update.calls for one in _sequences(call)]
    return tuple(sorted(found, key=lambda one: (math.isnan(keys[by](one)), keys[by](one)))[:n])


def _sequences(call: ReplayedCall) -> Iterable[RecordedSequence]:
    recorded, columns = call.recorded.call, call.columns
    texts = {sample.sequence: sample.text for sample in recorded.texts}
    unknown = np.full(columns.n_sequences, np.nan)
    n_tokens = np.asarray(columns["n_tokens"])
    sums = np.asarray(columns[f"{columns.primary}_sum_abs_d"]) if columns.primary else unknown
    rewards = np.asarray(columns["reward"]) if "reward" in columns else unknown
    for at in range(columns.n_sequences):
        yield RecordedSequence(
            rank=call.recorded.rank,
            step=recorded.step,
            update=recorded.update,
            chunk=recorded.chunk,
            sequence=at,
            n_tokens=int(n_tokens[at]),
            reward=float(rewards[at]),
            mean_abs_d=float(sums[at] / n_tokens[at]) if n_tokens[at] else math.nan,
            accepted=bool(call.accepted[at]),
            text=texts.get(at),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The updates of a recording in order, and the tokens with the largest |d|, largest first."""

    updates: tuple[ReplayedUpdate, ...]
    worst: tuple[RecordedToken, ...]

    @property
    def n_differing(self) -> int:
        """How many sequences were decided otherwise then."""
        return sum(update.n_differing for update in self.updates)


def replay_recording(recorded: Iterable[RecordedTokens], *, n_worst: int) -> Replay:
    """Return the replay of calls. Errors: InvalidInput naming the file of a call that cannot be computed again."""
    by_update: dict[tuple[int, int], list[ReplayedCall]] = defaultdict(list)
    for one in recorded:
        update = -1 if one.call.update is None else one.call.update
        by_update[one.call.step, update].append(replay_call(one, n_worst=n_worst))
    updates = tuple(_merged(calls) for _, calls in sorted(by_update.items()))
    tokens = [token for update in updates for call in update.calls for token in _tokens(call)]
    tokens.sort(key=lambda found: -abs(found.token.d))
    return Replay(updates=updates, worst=tuple(tokens[:n_worst]))


def _merged(calls: Sequence[ReplayedCall]) -> ReplayedUpdate:
    ordered = sorted(calls, key=lambda call: (call.recorded.rank, call.recorded.call.chunk))
    columns = merge_columns([call.columns for call in ordered])
    first = ordered[0].recorded.call
    return ReplayedUpdate(
        step=first.step,
        update=first.update,
        calls=tuple(ordered),
        columns=columns,
        signals=columns_signals(columns),
        n_rejected=sum(int(np.sum(~call.accepted)) for call in ordered),
    )


def _tokens(call: ReplayedCall) -> Iterable[RecordedToken]:
    recorded = call.recorded
    texts = {sample.sequence: sample.text for sample in recorded.call.texts}
    for token in call.worst:
        yield RecordedToken(
            rank=recorded.rank,
            step=recorded.call.step,
            update=recorded.call.update,
            chunk=recorded.call.chunk,
            token=token,
            text=texts.get(token.sequence),
        )
