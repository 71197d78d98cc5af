"""Replay: columns and decisions computed again, and the worst tokens named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trmon.domain.errors import InvalidInput
from trmon.domain.recording import RecordedTokens, replay_recording
from trmon_client.core import acceptance, signals, statistics
from trmon_client.core.recording_format import RecordedCall, RecordedText

POLICY = acceptance.preset("trm_max")


def tokens(seed: int = 0, *, far: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mu = -rng.exponential(1.0, (6, 10))
    pi = np.minimum(mu + rng.normal(0, 1e-3, mu.shape), -1e-6)
    if far is not None:
        pi[far, 7] = mu[far, 7] - 4.0
    return {"rollout_logprobs": mu, "logprobs": pi, "mask": np.ones(mu.shape, bool)}


def recorded(
    arrays: dict[str, Any], *, step: int = 3, chunk: int = 0, rank: int = 0, semantics: int | None = None, **entry: Any
) -> RecordedTokens:
    policy = entry.pop("policy", POLICY)
    usual = {"file": f"{step}.npz", "update": None, "mode": "observe", "policy": policy.spec(), "kl_is": "sampled"}
    call = RecordedCall(step=step, chunk=chunk, **usual | entry)
    given = {name: value for name, value in arrays.items() if name != "token_ids"}
    accepted = acceptance.decide(statistics.columns(**given), policy).accepted
    fields = {"rank": rank, "call": call, "arrays": {**arrays, "accepted": accepted}}
    return RecordedTokens(**fields if semantics is None else {**fields, "semantics": semantics})


def test_chunks_and_ranks_of_an_update_are_computed_together() -> None:
    parts = [tokens(0), tokens(1, far=2), tokens(2)]
    found = replay_recording(
        [recorded(parts[1], chunk=1), recorded(parts[0]), recorded(parts[2], rank=1), recorded(parts[0], step=4)],
        n_worst=3,
    )
    first, second = found.updates
    columns = [statistics.columns(**part) for part in parts]
    merged = signals.compute(type(columns[0]).merge(*columns))
    assert {name: first.signals[name] for name in merged} == pytest.approx(merged, rel=0, abs=0, nan_ok=True)
    assert (first.step, first.n_sequences, first.n_rejected, second.step) == (3, 18, 1, 4)
    assert found.n_differing == 0


def test_turns_are_recorded_and_decided_again() -> None:
    turns = acceptance.Policy.parse(
        {"name": "turns", "criteria": [], "turns": [{"statistic": "turn_max_abs_d", "upper": 0.5}]}
    )
    arrays = tokens(far=4) | {"turn_ids": np.tile(np.arange(10) // 5, (6, 1))}
    found = replay_recording([recorded(arrays, policy=turns)], n_worst=1)
    assert (found.n_differing, found.updates[0].n_rejected) == (0, 0)


def test_the_worst_token_is_named_by_its_place_id_and_text() -> None:
    arrays = tokens(far=4) | {"token_ids": np.arange(60).reshape(6, 10)}
    texts = (RecordedText(4, "worst", "the answer"),)
    worst = replay_recording([recorded(tokens(1), step=1), recorded(arrays, texts=texts)], n_worst=2).worst[0]
    assert (worst.step, worst.chunk, worst.token.sequence, worst.token.position) == (3, 0, 4, 7)
    assert (worst.token.token_id, worst.text) == (47, "the answer")
    assert worst.token.d == pytest.approx(-4.0)


def test_a_decision_that_differs_is_counted() -> None:
    call = recorded(tokens(far=1))
    changed = call.arrays["accepted"].copy()
    changed[:2] = ~changed[:2]
    altered = RecordedTokens(rank=0, call=call.call, arrays={**call.arrays, "accepted": changed})
    assert replay_recording([altered], n_worst=0).n_differing == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kl_is": "exact"}, "logits were given, which are not recorded"),
        ({"semantics": 1}, "decided by semantics 1"),
    ],
)
def test_decisions_that_cannot_be_compared_say_why(change: dict[str, Any], why: str) -> None:
    [update] = replay_recording([recorded(tokens(far=1), **change)], n_worst=0).updates
    assert [why in note for note in update.notes] == [True]
    assert update.n_differing == 0


def test_a_policy_of_token_rules_has_its_columns_too() -> None:
    [update] = replay_recording([recorded(tokens(far=1), policy=acceptance.preset("icepop"))], n_worst=0).updates
    assert update.signals["token_mask_rate"] > 0


def test_one_policy_alone_has_lengths_and_no_worst_tokens() -> None:
    arrays = {name: value for name, value in tokens().items() if name != "logprobs"}
    found = replay_recording([recorded(arrays)], n_worst=5)
    assert found.worst == ()
    assert found.updates[0].signals["response_length_mean"] == 10


def test_arrays_that_do_not_fit_name_the_file() -> None:
    call = recorded(tokens())
    broken = RecordedTokens(rank=0, call=call.call, arrays={**call.arrays, "mask": np.ones((1, 2), bool)})
    with pytest.raises(InvalidInput, match=r"3.npz: mask has shape"):
        replay_recording([broken], n_worst=0)
