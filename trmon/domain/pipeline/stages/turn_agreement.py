"""Compares the trainer's decisions on turns with the replay, and measures their mask rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from trmon.domain.pipeline.stages.merge import MergedBatch, ReportPart
from trmon_client.core.arrays import Array
from trmon_client.core.policies.decision import Decision
from trmon_client.core.wire import unpack_bits


def accepted_turns(parts: Sequence[ReportPart]) -> Array | None:
    """Return the trainer's decision on the turns of all parts, [R] bool; None if a part has none."""
    found = []
    for part in parts:
        sent, turns = part.stored.report.turns, part.columns.turns
        if turns is None or sent is msgspec.UNSET or sent.accepted is None:
            return None
        found.append(unpack_bits(sent.accepted, len(turns.n_tokens)))
    return np.concatenate(found)


def agreeing_sequences(decision: Decision, parts: Sequence[ReportPart], *, accepted: Array) -> Array:
    """Return on which sequences trainer and replay agree, turns included, [B] bool. Args: accepted: the trainer's."""
    agree: Array = decision.accepted == accepted
    sent = None if decision.turns is None else accepted_turns(parts)
    if decision.turns is None or sent is None:
        return agree
    differing = decision.turns.turns.sequences[decision.turns.accepted != sent]
    agree[differing] = False
    return agree


def turn_mask_rates(merged: MergedBatch) -> dict[str, float]:
    """Return the rejected shares of turns and of their tokens; nothing unless the trainer decided on all turns.

    Returns: turn_mask_rate, of turns with valid tokens; turn_mask_rate_tokens, of the valid tokens of turns; NaN
    without such a turn.
    Source: formulas, section 5.
    """
    accepted, turns = accepted_turns(merged.parts), merged.columns.turns
    if accepted is None or turns is None:
        return {}
    n_tokens = turns.n_tokens
    n_turns, total = int(np.count_nonzero(n_tokens)), int(n_tokens.sum())
    rejected = ~accepted & (n_tokens > 0)
    return {
        "turn_mask_rate": int(np.count_nonzero(rejected)) / n_turns if n_turns else math.nan,
        "turn_mask_rate_tokens": int(n_tokens[rejected].sum()) / total if total else math.nan,
    }
