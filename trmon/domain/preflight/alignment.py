"""Aligns the tokens of two engines, and finds what differs before any number does: ids, padding and a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.preflight.token_pairs import EngineScores, Rows, TokenPairs

SHIFTS = (1, -1)
PEARSON = "mismatch_prob_pearson"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdDifference:
    """The first token whose id differs, its place in the trainer, and both ids: None where a row has ended."""

    sequence: int
    position: int
    rollout_id: int | None
    trainer_id: int | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Alignment:
    """The tokens that both engines score, and what had to be set aside to compare them.

    `n_retokenised`: sequences whose ids differ, None if an engine names no ids; their tokens from the first difference
    on are left out. `rollout_only`, `trainer_only`: positions that count for one engine alone. `shift`: by how many
    positions the rollout's log-probs were moved back, 0 if they fit best as they are.
    """

    pairs: TokenPairs
    n_retokenised: int | None
    first_difference: IdDifference | None
    rollout_only: int
    trainer_only: int
    shift: int


def align(rollout: EngineScores, trainer: EngineScores, *, least_pearson: float) -> Alignment:
    """Return the aligned tokens of the same sequences.

    Args: least_pearson: the least correlation of probabilities of engines that agree.
    Source: arXiv 2605.14220 (same weights, same tokens).
    """
    masks = mask_of(rollout, trainer), mask_of(trainer, rollout)
    has_ids = rollout.token_ids is not None and trainer.token_ids is not None
    in_order = has_ids or all(np.count_nonzero(a) == np.count_nonzero(b) for a, b in zip(*masks, strict=True))
    positions, differences, only = [], [], np.zeros(2, np.int64)
    for index, (of_rollout, of_trainer) in enumerate(zip(*masks, strict=True)):
        at = _in_order(of_rollout, of_trainer) if in_order else _in_both(of_rollout, of_trainer)
        differs = None
        if rollout.token_ids is not None and trainer.token_ids is not None:
            at, differs = _equal_prefix(rollout.token_ids[index], trainer.token_ids[index], at, sequence=index)
        if differs is None:
            n = max(len(of_rollout), len(of_trainer))
            first, second = (np.pad(mask, (0, n - len(mask))) for mask in (of_rollout, of_trainer))
            only += np.array([np.count_nonzero(first & ~second), np.count_nonzero(second & ~first)])
        else:
            differences.append(differs)
        positions.append(at)
    pairs, shift = _unshifted(TokenPairs.at(rollout, trainer, positions), least_pearson=least_pearson)
    return Alignment(
        pairs=pairs,
        n_retokenised=len(differences) if has_ids else None,
        first_difference=differences[0] if differences else None,
        rollout_only=int(only[0]),
        trainer_only=int(only[1]),
        shift=shift,
    )


def mask_of(scores: EngineScores, other: EngineScores) -> Rows:
    """Return the mask of an engine; one without a mask counts the tokens that the other counts, else all."""
    if scores.mask is not None:
        return scores.mask
    every = tuple(np.ones(len(row), bool) for row in scores.logprobs)
    if other.mask is None:
        return every
    return tuple(mask if len(mask) == len(own) else own for mask, own in zip(other.mask, every, strict=True))


def _in_order(of_rollout: Any, of_trainer: Any) -> tuple[Any, Any]:
    """Return the positions of the first counting tokens of both, then of the second, and so on."""
    first, second = np.flatnonzero(of_rollout), np.flatnonzero(of_trainer)
    n = min(len(first), len(second))
    return first[:n], second[:n]


def _in_both(of_rollout: Any, of_trainer: Any) -> tuple[Any, Any]:
    n = min(len(of_rollout), len(of_trainer))
    both = np.flatnonzero(of_rollout[:n] & of_trainer[:n])
    return both, both


def _equal_prefix(
    of_rollout: Any, of_trainer: Any, at: tuple[Any, Any], *, sequence: int
) -> tuple[tuple[Any, Any], IdDifference | None]:
    """Return the positions before the first id that differs, in the prompt or among the counting tokens."""
    first, second = at
    prompts = of_rollout[: first[0]] if len(first) else of_rollout[:0], of_trainer[: second[0] if len(second) else 0]
    if all(map(len, prompts)) and not np.array_equal(*prompts):
        n = min(map(len, prompts))
        differs = np.flatnonzero(prompts[0][:n] != prompts[1][:n])
        start = int(differs[0]) if len(differs) else n
        return (first[:0], second[:0]), _difference(of_rollout, of_trainer, (start, start), sequence=sequence)
    differs = np.flatnonzero(of_rollout[first] != of_trainer[second])
    if not len(differs):
        return at, None
    n = int(differs[0])
    where = int(first[n]), int(second[n])
    return (first[:n], second[:n]), _difference(of_rollout, of_trainer, where, sequence=sequence)


def _difference(of_rollout: Any, of_trainer: Any, at: tuple[int, int], *, sequence: int) -> IdDifference:
    ids = [int(row[i]) if i < len(row) else None for row, i in zip((of_rollout, of_trainer), at, strict=True)]
    return IdDifference(sequence=sequence, position=at[1], rollout_id=ids[0], trainer_id=ids[1])


def _unshifted(pairs: TokenPairs, *, least_pearson: float) -> tuple[TokenPairs, int]:
    """Return the pairs as they fit best, and the shift that this undid: probabilities correlate only at a neighbour."""
    if not pairs.signals()[PEARSON] < least_pearson:
        return pairs, 0
    moved = {by: pairs.shifted(by) for by in SHIFTS}
    fits = {by: found for by, shifted in moved.items() if (found := shifted.signals()[PEARSON]) >= least_pearson}
    best = max(fits, key=fits.__getitem__, default=0)
    return moved.get(best, pairs), best
