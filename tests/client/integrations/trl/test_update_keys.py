"""Micro-batches have the step at which their rollouts were generated, the update since then, and its length."""

from __future__ import annotations

import pytest

from trmon_client.integrations.trl.rollout_hooks import UpdateKey, UpdateKeys


def keys_of(*, accumulation: int, per_generation: int, iterations: int, windows: list[int]) -> list[tuple[int, ...]]:
    """Return (step, update, chunks or -1) of each micro-batch of optimizer steps of these lengths."""
    calls_per_rollout = per_generation * iterations
    keys, found, calls = UpdateKeys(calls_per_rollout=calls_per_rollout), [], 0
    for global_step, n_calls in enumerate(windows):
        for _ in range(n_calls):
            if calls % calls_per_rollout == 0:
                keys.begin_rollout(global_step)
            key: UpdateKey = keys.next(global_step, chunks=n_calls if n_calls == accumulation else None)
            found.append((key.step, key.update, -1 if key.chunks is None else key.chunks))
            calls += 1
    return found


@pytest.mark.parametrize(
    ("accumulation", "per_generation", "iterations", "windows", "expected"),
    [
        (1, 1, 1, [1, 1], [(0, 0, 1), (1, 0, 1)]),
        (2, 2, 1, [2, 2], [(0, 0, 2)] * 2 + [(1, 0, 2)] * 2),
        (1, 2, 1, [1] * 4, [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1)]),
        (1, 1, 2, [1] * 4, [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1)]),
        (2, 2, 2, [2] * 3, [(0, 0, 2)] * 2 + [(0, 1, 2)] * 2 + [(2, 0, 2)] * 2),
        (2, 1, 1, [2, 2], [(0, 0, 2)] * 2 + [(1, 0, 2)] * 2),
        (2, 3, 1, [2, 2], [(0, 0, 2)] * 2 + [(0, 1, -1), (1, 0, -1)]),
        (2, 2, 1, [2, 1, 2], [(0, 0, 2)] * 2 + [(1, 0, -1), (1, 1, -1), (2, 0, -1)]),
    ],
    ids=[
        "one micro-batch",
        "accumulation",
        "several updates of one generation",
        "iterations",
        "iterations and accumulation",
        "several generations in one optimizer step",
        "a generation within an optimizer step",
        "an epoch's short last step",
    ],
)
def test_a_micro_batch_has_its_key(
    accumulation: int, per_generation: int, iterations: int, windows: list[int], expected: list[tuple[int, ...]]
) -> None:
    found = keys_of(accumulation=accumulation, per_generation=per_generation, iterations=iterations, windows=windows)
    assert found == expected
