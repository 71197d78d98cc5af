"""The columns of the labels that the trainer gives its sequences."""

from __future__ import annotations

import numpy as np

from tests.core.batches import batch
from trmon_client.core import statistics


def test_advantages_and_versions_of_tokens_are_reduced_over_valid_tokens_only() -> None:
    logp = np.array([[-1.0, -1.0, -1.0], [-1.0, np.nan, -1.0], [-1.0, -1.0, -1.0]])
    found = statistics.columns(
        rollout_logprobs=logp,
        logprobs=logp,
        mask=np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]]),
        advantages=np.array([[1.0, 2.0, 9.0], [1.0, 9.0, 3.0], [9.0, 9.0, 9.0]]),
        versions=np.array([[3, 5, 99], [7, 1, 8], [4, 4, 4]]),
    )
    np.testing.assert_array_equal(found["advantage"], [1.5, 2.0, np.nan])
    assert found["version_min"].tolist() == [3, 7, -1]
    assert found["version_max"].tolist() == [5, 8, -1]


def test_negative_versions_of_tokens_are_allowed() -> None:
    logp = np.full((2, 2), -1.0)
    versions = np.array([[-5, -3], [-7, -7]])
    found = statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=np.array([[1, 1], [1, 0]]), versions=versions)
    assert (found["version_min"].tolist(), found["version_max"].tolist()) == ([-5, -7], [-3, -7])


def test_labels_of_a_sequence_are_copied() -> None:
    found = statistics.columns(
        **batch(0, n_sequences=2),
        advantages=[0.5, -1],
        rewards=[1, 0],
        versions=[4, 6],
        truncated=[3, 0],
        trainer_version=7,
        old_version=6,
    )
    assert found["advantage"].tolist() == [0.5, -1.0]
    assert found["reward"].tolist() == [1.0, 0.0]
    assert found["version_min"].tolist() == found["version_max"].tolist() == [4, 6]
    assert found["truncated"].tolist() == [1, 0]
    assert (found.trainer_version, found.old_version) == (7, 6)


def test_columns_own_their_memory() -> None:
    given = {"advantages": np.ones(3), "rewards": np.ones(3), "group_ids": np.arange(3), "versions": np.arange(3)}
    given["truncated"] = np.ones(3, np.int64)
    found = statistics.columns(**batch(seed=0, n_sequences=3), **given)
    assert not any(np.shares_memory(array, mine) for array in given.values() for mine in found.values())
