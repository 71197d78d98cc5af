"""The replay of decisions, and the policies that reports may name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.pipeline.closings import closing, pass_context
from tests.domain.trainer import made, report
from trmon.domain.batches.batch import PolicyRole
from trmon.domain.pipeline.merge import merge_reports
from trmon.domain.pipeline.replay import ReplayedDecisions, mask_rates, minorizer_signals, replay_decisions
from trmon.domain.policies import PolicyRegistry, PolicyVersion, default_version
from trmon_client.core import divergence, wire
from trmon_client.core.bounds import minorizer
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.token_decision import apply_token_rules
from trmon_client.core.statistics import columns


def replayed(*reports: wire.Report, **changed: Any) -> ReplayedDecisions:
    batch = closing(*reports, context=pass_context(**changed))
    return replay_decisions(batch, merge_reports(batch))


def version(*shadows: str, policy: str = "trm") -> PolicyVersion:
    return PolicyVersion(
        policy=preset(policy), shadows=tuple(map(preset, shadows)), author="me", reason="", created_at=0.0
    )


def knowing(*policies: Policy) -> PolicyRegistry:
    """Return a registry that knows these policies, too."""
    return PolicyRegistry.of(version(), versions=[replace(version(), policy=policy) for policy in policies])


def test_agreement_has_no_mismatches_and_the_reasons_of_the_replay() -> None:
    found = replayed(report(0, health="noisy"))
    active = found.decisions[0]
    expected = decide(made("noisy"), preset("trm"))
    assert found.mismatches == 0
    assert active.counts == expected.counts()
    assert active.mask_rate == found.signals["mask_rate"] == expected.mask_rate


def test_the_decision_of_the_trainer_stays_if_the_replay_disagrees() -> None:
    found = replayed(report(0, accepted=wire.pack_bits([True] * 7 + [False])))
    assert (found.mismatches, found.decisions[0].counts["disagreement"]) == (1, 1)
    assert found.signals["mask_rate"] == 1 / 8


def test_bits_decided_on_arrival_are_not_compared() -> None:
    found = replayed(report(0, policy=None, accepted=wire.pack_bits([False] * 8)))
    assert found.mismatches == 0
    assert (found.decisions[0].policy_name, found.decisions[0].mask_rate) == ("trm_auto", 1.0)


def test_the_replay_of_a_token_policy_decides_sequences() -> None:
    found = replayed(report(0, health="noisy", policy=preset("icepop"), accepted=wire.pack_bits([True] * 8)))
    assert (found.mismatches, found.unreplayed) == (0, 0)
    assert (found.decisions[0].policy_name, found.decisions[0].counts) == ("icepop", {"accepted": 8})


def test_each_rank_is_decided_by_its_own_policy_version_and_flagged() -> None:
    found = replayed(report(0, rank=0, world_size=2), report(0, rank=1, world_size=2, policy=preset("token_veto")))
    assert found.mismatches == 0
    assert found.signals["policy_versions"] == 2.0
    assert [decision.policy_name for decision in found.decisions] == ["trm", "trm_max", "geo_mask"]


def test_each_rank_is_decided_with_its_own_weight_version() -> None:
    policy = Policy.parse(
        {"name": "fresh", "criteria": [{"statistic": "version_lag", "pair": "primary", "upper": 1.0}]}
    )

    def of_rank(rank: int, *, at_version: int) -> wire.Report:
        zeros = np.zeros((4, 3))
        given = {"rollout_logprobs": zeros - 1, "logprobs": zeros - 1, "mask": zeros == 0}
        content = columns(**given, versions=np.full(4, at_version), trainer_version=at_version)
        return report(
            0, rank=rank, world_size=2, content=content, policy=policy, trainer_version=content.trainer_version
        )

    found = replayed(of_rank(0, at_version=3), of_rank(1, at_version=9), policies=knowing(policy))
    assert found.decisions[0].counts["accepted"] == 8
    assert (found.mismatches, found.unreplayed) == (0, 0)


def test_an_unknown_policy_is_not_replayed() -> None:
    strange = preset("trm", delta=0.0123)
    found = replayed(report(0, policy=strange, accepted=wire.pack_bits([False] * 8)))
    assert (found.unreplayed, found.mismatches) == (1, 0)
    assert (found.decisions[0].policy_hash, found.decisions[0].policy_name) == (strange.hash, "unknown_policy")
    assert found.decisions[0].counts == {"accepted": 0, "unknown_policy": 8}


def test_a_shadow_that_cannot_decide_is_unknown_never_zero() -> None:
    logprobs = np.full((2, 4), -1.0)
    content = columns(rollout_logprobs=logprobs, old_logprobs=logprobs, mask=np.ones((2, 4), bool))
    policies = PolicyRegistry.of(version("opsm", "geo_mask"))
    found = replayed(report(0, content=content), policies=policies)
    assert math.isnan(found.signals["mask_rate:opsm"])
    assert found.signals["mask_rate:geo_mask"] == 0.0
    assert [decision.policy_name for decision in found.decisions] == ["trm", "geo_mask"]


@pytest.mark.parametrize("policy", [preset("trm"), None], ids=["named", "not named"])
def test_the_active_policy_is_not_its_own_shadow(policy: Any) -> None:
    policies = PolicyRegistry.of(version("trm", "geo_mask"))
    found = replayed(report(0, policy=policy), policies=policies)
    assert [(decision.policy_name, decision.role) for decision in found.decisions] == [
        ("trm", PolicyRole.ACTIVE),
        ("geo_mask", PolicyRole.SHADOW),
    ]


def test_an_empty_batch_is_replayed_too() -> None:
    nothing = np.zeros((2, 4))
    content = columns(rollout_logprobs=nothing, old_logprobs=nothing, mask=np.zeros((2, 4), bool))
    found = replayed(report(0, content=content))
    assert found.decisions[0].counts == {"accepted": 0, "empty": 2}
    assert math.isnan(found.signals["mask_rate"])


def test_decisions_of_the_semantics_before_are_not_counted_as_mismatches() -> None:
    wrong = wire.pack_bits([False] * 8)
    assert replayed(report(0, accepted=wrong, semantics=1)).mismatches == 0


def test_the_mean_weight_of_sequences_counts_rejected_ones_as_zero() -> None:
    old = np.full((4, 2), -1.0)
    d = np.array([[0.0, 0.0], [-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    given = {"rollout_logprobs": old - d, "old_logprobs": old, "mask": np.array([[1, 1]] * 3 + [[0, 0]], bool)}
    policy = preset("seq_mis")
    content = apply_token_rules(policy, **given).attached_to(columns(**given))
    found = replayed(report(0, content=content, policy=policy))
    assert found.mismatches == 0
    assert found.signals["sequence_weight_mean"] == pytest.approx((1 + math.exp(-2.0)) / 3)
    assert found.signals["sequence_weight_ess"] == pytest.approx((1 + math.exp(-2.0)) ** 2 / (3 * (1 + math.exp(-4.0))))
    assert "sequence_weight_mean" not in replayed(report(0)).signals


@pytest.fixture(scope="module")
def far_apart() -> Columns:
    """Return three sequences, of which a bound of 0.5 on |d| rejects two, and an empty one."""
    old = np.full((4, 2), -1.0)
    mask = np.array([[1, 1]] * 3 + [[0, 0]], bool)
    return columns(rollout_logprobs=old - [[0.0], [-0.6], [1.0], [0.0]], old_logprobs=old, mask=mask)


def test_the_replay_has_the_weights_of_the_trainer_under_a_soft_policy(far_apart: Columns) -> None:
    hard = Policy("hard", (Criterion("max_abs_d", upper=0.5),))
    soft = replace(hard, name="soft", soft_tau=2.0)
    decided = decide(far_apart, soft)
    bits = wire.pack_bits(decided.accepted)
    of_ranks = [
        report(0, content=far_apart, policy=policy, rank=rank, world_size=2, accepted=bits)
        for rank, policy in enumerate((hard, soft))
    ]
    weights = decided.soft_weights[:3]
    found, alone, both = (
        replayed(*reports, policies=knowing(soft, hard)) for reports in (of_ranks[1:], of_ranks[:1], of_ranks)
    )
    assert (found.mismatches, found.unreplayed, both.mismatches) == (0, 0, 0)
    assert found.signals["mask_rate"] == pytest.approx(2 / 3)
    assert found.signals["sequence_weight_mean"] == weights.mean()
    assert "sequence_weight_mean" not in alone.signals
    assert both.signals["sequence_weight_mean"] == pytest.approx((1 + weights.sum()) / 6), "of the hard one, 1 of 3"


def batch(lengths: list[int], *, invalid: list[int] | None = None, **columns: Any) -> Columns:
    values = {"n_tokens": np.array(lengths), "n_invalid": np.array(invalid or [0] * len(lengths))}
    return Columns(values | {name: np.array(array) for name, array in columns.items()})


@pytest.mark.parametrize(
    ("columns", "accepted", "expected"),
    [
        pytest.param(
            batch([10, 20, 30, 40]),
            [1, 1, 1, 0],
            {"mask_rate": 0.25, "mask_rate_tokens": 0.4, "mask_rate_long": 1.0, "mask_rate_short": 0.0},
            id="the longest is rejected",
        ),
        pytest.param(
            batch([10, 0, 0], invalid=[0, 0, 3]),
            [1, 0, 0],
            {"mask_rate": 0.5, "mask_rate_tokens": 0.0},
            id="empty sequences are left out, wholly invalid ones count",
        ),
        pytest.param(batch([0, 0]), [0, 0], {"mask_rate": math.nan, "mask_rate_long": math.nan}, id="nothing to share"),
        pytest.param(batch([]), [], {"mask_rate": math.nan, "mask_rate_short": math.nan}, id="no sequence at all"),
        pytest.param(
            batch([5, 5, 5, 5], advantage=[1.0, 2.0, -1.0, math.nan]),
            [1, 0, 0, 0],
            {"mask_rate_positive": 0.5, "mask_rate_negative": 1.0},
            id="by the sign of the advantage, nan has none",
        ),
    ],
)
def test_mask_rates(columns: Columns, accepted: list[int], expected: dict[str, float]) -> None:
    found = mask_rates(columns, np.array(accepted, bool))
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    assert ("mask_rate_positive" in found) is ("advantage" in columns)


DECLARED: dict[str, Any] = {"advantages_centred": True}
ACCEPTED = np.array([True, True, False])


def of_logits(*, exact: bool = True) -> Columns:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, 5))
    b = a + 1e-3 * rng.normal(size=a.shape)
    tokens, mask = rng.integers(0, 5, (3, 4, 1)), np.ones((3, 4), bool)
    mu, pi = (np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), tokens, -1)[..., 0] for x in (a, b))
    made_of = columns(rollout_logprobs=mu, logprobs=pi, mask=mask, advantages=[0.2, -0.1, -0.1])
    return with_divergences(made_of, divergence.exact(rollout_logits=a, logits=b, mask=mask)) if exact else made_of


def test_a_run_that_declares_centred_advantages_has_a_minorizer() -> None:
    found = minorizer_signals(of_logits(), ACCEPTED, config=DECLARED | {"reward_range": 2})
    expected = minorizer(of_logits(), accepted=ACCEPTED, centred=True, reward_range=2.0)
    assert found == {"minorizer": expected.value, "minorizer_vacuous": float(expected.vacuous or False)}
    assert math.isfinite(expected.value)


def test_the_minorizer_has_the_weights_of_a_soft_policy() -> None:
    content = of_logits()
    policy = Policy("soft", (Criterion("max_kl", upper=float(np.median(content["max_kl"]))),), soft_tau=1.0)
    decided = decide(content, policy)
    bits = wire.pack_bits(decided.accepted)
    reported = report(0, content=content, policy=policy, accepted=bits, kl_is="exact", kl_pair="total")
    found = replayed(reported, policies=knowing(policy), run={"config": DECLARED}).signals["minorizer"]
    assert found == minorizer(content, weights=decided.soft_weights, centred=True).value
    assert found != minorizer(content, accepted=decided.accepted, centred=True).value


@pytest.mark.parametrize("config", [{}, {"advantages_centred": False}, {"advantages_centred": "yes"}])
def test_a_run_that_declares_nothing_or_has_no_logits_has_none(config: dict[str, Any]) -> None:
    assert minorizer_signals(of_logits(), ACCEPTED, config=config) == {}
    assert minorizer_signals(of_logits(exact=False), ACCEPTED, config=DECLARED) == {}


def test_a_range_below_zero_leaves_it_unknown() -> None:
    found = minorizer_signals(of_logits(), ACCEPTED, config=DECLARED | {"reward_range": -1})
    assert all(math.isnan(value) for value in found.values())


TURNS = Policy.parse({"name": "turns", "criteria": [], "turns": [{"statistic": "turn_max_abs_d", "upper": 0.5}]})
REGISTRY = PolicyRegistry.of(replace(version(), policy=TURNS))


def traces(seed: int = 0, *, n: int = 4) -> Columns:
    """Return sequences of three turns, of 4, 0 and 8 tokens."""
    random = np.random.default_rng(seed)
    old = -random.exponential(1.0, (n, 12))
    rollout = np.minimum(old + random.normal(0, 0.25, old.shape), 0)
    return columns(
        rollout_logprobs=rollout, old_logprobs=old, mask=np.ones(old.shape, bool), turn_offsets=[[0, 4, 4]] * n
    )


def sent(step: int = 0, *, content: Columns, flipped: tuple[int, ...] = (), **fields: Any) -> wire.Report:
    """Return a report with its turns; the decision on those of `flipped` is not the policy's."""
    decided = decide(content, TURNS).turns
    accepted = decided.accepted.copy()
    accepted[list(flipped)] ^= True
    turns = wire.pack_turns(content.turns, accepted=accepted)
    return report(step, content=content, policy=TURNS, **{"turns": turns} | fields)


def test_the_replay_of_turns_agrees() -> None:
    found = replayed(sent(content=traces()), sent(content=traces(1), rank=1, world_size=2), policies=REGISTRY)
    assert (found.mismatches, found.unreplayed) == (0, 0)
    assert 0 < found.signals["turn_mask_rate"] < 1
    assert found.signals["mask_rate"] == 0


@pytest.mark.parametrize(("flipped", "mismatches"), [((0,), 1), ((0, 2), 1), ((0, 11), 2)])
def test_a_sequence_with_a_turn_decided_otherwise_is_a_mismatch(flipped: tuple[int, ...], mismatches: int) -> None:
    found = replayed(sent(content=traces(), flipped=flipped), policies=REGISTRY)
    assert found.mismatches == mismatches
    assert found.decisions[0].counts["accepted"] == 4


def test_the_mask_rates_of_turns_are_of_turns_with_tokens() -> None:
    content = traces()
    decided = decide(content, TURNS).turns
    rejected = np.array([not accepted for accepted in decided.accepted])
    tokens = np.tile([4, 0, 8], 4)
    found = replayed(sent(content=content), policies=REGISTRY).signals
    assert found["turn_mask_rate"] == rejected.sum() / 8 == decided.mask_rate
    assert found["turn_mask_rate_tokens"] == tokens[rejected].sum() / 48


def test_without_a_turn_with_tokens_the_rates_are_nan() -> None:
    ones = np.ones((2, 4))
    content = columns(rollout_logprobs=-ones, old_logprobs=-ones, mask=ones, turn_offsets=[[9], []])
    found = replayed(sent(content=content), policies=REGISTRY).signals
    assert math.isnan(found["turn_mask_rate"])
    assert math.isnan(found["turn_mask_rate_tokens"])


def test_a_rank_without_turns_leaves_the_batch_without_their_rates() -> None:
    other = report(0, content=made(n=4, length=12), policy=Policy.parse("trm"), rank=1, world_size=2)
    found = replayed(sent(content=traces()), other, policies=REGISTRY)
    assert "turn_mask_rate" not in found.signals
    assert (found.mismatches, found.unreplayed) == (0, 0)


def test_a_rank_that_lacks_a_pair_keeps_its_turns_without_tokens() -> None:
    content = traces()
    short = columns(mask=np.ones((2, 12), bool), turn_offsets=[[0], [0, 6]])
    other = report(0, content=short, policy=None, turns=wire.pack_turns(short.turns), rank=1, world_size=2)
    merged = merge_reports(closing(sent(content=content), other, context=pass_context(policies=REGISTRY)))
    assert merged.columns.turns.n_turns.tolist() == [3] * 4 + [1, 2]
    assert merged.columns.turns.n_tokens.tolist()[12:] == [0, 0, 0]


def test_turns_that_the_trainer_did_not_decide_are_not_compared() -> None:
    content = traces()
    found = replayed(sent(content=content, turns=wire.pack_turns(content.turns)), policies=REGISTRY)
    assert found.mismatches == 0
    assert "turn_mask_rate" not in found.signals


def test_presets_and_all_versions_are_known() -> None:
    moved = preset("trm", delta=0.02)
    registry = PolicyRegistry.of(default_version(now=0.0))
    assert registry.find(preset("seq_mis").hash) == preset("seq_mis")
    assert registry.find(preset("icepop").hash) == preset("icepop")
    assert registry.find(moved.hash) is None
    assert registry.with_policy(moved).find(moved.hash) == moved
    assert registry.with_policy(moved).with_current(default_version(now=1.0)).find(moved.hash) == moved


def test_a_report_without_a_policy_has_the_current_one() -> None:
    assert PolicyRegistry.of(default_version(now=0.0)).find(None) == preset("trm_auto")
