"""The mask rate's controller: where it goes in one update, why it stays, where it ends, and what it samples."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tests.domain.adaptation import stream
from trmon.domain.adaptation.proposal import (
    AdaptationSetting,
    BoundProposal,
    ControllerResult,
    NoChangeReason,
    PolicySample,
    SampleWindow,
    StepKey,
    sample_of_reports,
)
from trmon.domain.adaptation.target_mask_rate import anchor_of, propose, recommend, version_of_proposal
from trmon.domain.policies import PolicyVersion, default_version
from trmon_client.core import statistics
from trmon_client.core.bounds import max_delta
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN

SETTING = AdaptationSetting()
BY_A_PERSON = PolicyVersion(policy=stream.K3, shadows=(), author="ann", reason="", created_at=1.0)


def proposed(policy: Policy, sample: PolicySample, *, anchor: Policy | None = None) -> ControllerResult:
    return propose(sample, current=replace(BY_A_PERSON, policy=policy), anchor=anchor or policy, setting=SETTING)


def upper(bound: float) -> Policy:
    return Policy("k3", (Criterion("mean_k3", "total", upper=bound),))


@pytest.mark.parametrize(
    ("before", "limit", "after"),
    [
        pytest.param(0.0045, None, stream.k3_quantile(0.05), id="within a factor 2 it goes to the quantile at once"),
        pytest.param(0.08, "factor", 0.04, id="from above it goes half the way at most"),
        pytest.param(0.002, "factor", 0.004, id="from below it doubles at most"),
    ],
)
def test_one_update_of_an_upper_bound(before: float, limit: str | None, after: float) -> None:
    verdict = proposed(upper(before), stream.sample(stream.K3))
    (move,) = verdict.moves
    assert (move.statistic, move.side, move.before, move.limit) == ("mean_k3", "upper", before, limit)
    assert move.after == pytest.approx(after, rel=0.05 if limit is None else 1e-9)
    assert verdict.policy.criteria[0].upper == move.after


def test_two_sides_take_half_of_the_target_each() -> None:
    verdict = proposed(stream.GEO, stream.sample(stream.GEO))
    reach = NormalDist(0.0, 0.003).inv_cdf(0.975)
    (criterion,) = verdict.policy.criteria
    assert criterion.lower_compared == pytest.approx(-reach, rel=0.05)
    assert criterion.upper_compared == pytest.approx(reach, rel=0.05)
    assert verdict.mask_rate_after == pytest.approx(0.05, rel=0.02)


OPSM = Policy("opsm", (Criterion("mean_k1", "total", upper=0.004, where="advantage_negative"),))


@pytest.mark.parametrize(("policy", "n_moves"), [(stream.BOTH, 3), (OPSM, 1)], ids=["criteria", "a condition"])
def test_all_criteria_reject_the_target_together(policy: Policy, n_moves: int) -> None:
    verdict = proposed(policy, stream.sample(policy))
    assert len(verdict.moves) == n_moves
    assert verdict.mask_rate_after == pytest.approx(0.05, rel=0.02)


def test_the_lower_bound_of_a_ratio_is_moved_by_its_log() -> None:
    policy = Policy("veto", (Criterion("min_ratio", "total", lower=1e-4),))
    columns = stream.batch(np.random.default_rng(0), n=4096)
    columns.by_name["total_min_d"] = -np.random.default_rng(1).exponential(0.1, 4096)
    verdict = proposed(policy, PolicySample.of(columns, policy))
    assert verdict.policy.criteria[0].lower == pytest.approx(1e-2)


def with_first(statistic: float) -> PolicySample:
    found = stream.sample(stream.K3)
    found.statistics[:40, 0] = statistic
    return found


LARGE_SAMPLE = stream.sample(stream.K3)
EXACT = Policy("exact", (Criterion("max_kl", "total", upper=0.05, where="kl_exact"),))
ICEPOP = preset("icepop")


@pytest.mark.parametrize(
    ("reason", "policy", "given"),
    [
        pytest.param(NoChangeReason.NOT_A_NUMBER, stream.K3, with_first(math.nan), id="a NaN"),
        pytest.param(NoChangeReason.NOT_A_NUMBER, stream.K3, replace(LARGE_SAMPLE, n_invalid=1), id="an invalid one"),
        pytest.param(NoChangeReason.TOO_FEW, stream.K3, stream.sample(stream.K3, n=255), id="255 sequences"),
        pytest.param(NoChangeReason.IN_BAND, upper(stream.k3_quantile(0.05)), LARGE_SAMPLE, id="within 10%"),
        pytest.param(NoChangeReason.AT_LIMIT, stream.K3, stream.sample(stream.K3, k3=0.0), id="engines agree: no tail"),
        pytest.param(NoChangeReason.NOTHING_TO_MOVE, EXACT, stream.sample(EXACT), id="no criterion that applies"),
        pytest.param(NoChangeReason.NOTHING_TO_MOVE, ICEPOP, stream.sample(ICEPOP), id="token rules alone"),
        pytest.param(NoChangeReason.NOTHING_TO_MOVE, upper(0.0), LARGE_SAMPLE, id="a bound at zero has no scale"),
    ],
)
def test_the_bound_stays_and_says_why(reason: NoChangeReason, policy: Policy, given: PolicySample) -> None:
    verdict = proposed(policy, given)
    assert verdict.reason is reason
    assert verdict.detail


def test_256_sequences_are_enough_and_infinite_statistics_are_a_tail() -> None:
    assert isinstance(proposed(stream.K3, stream.sample(stream.K3, n=256)), BoundProposal)
    assert isinstance(proposed(stream.K3, with_first(math.inf)), BoundProposal)


@pytest.mark.parametrize(
    ("k3", "end", "limit"),
    [
        pytest.param(1.0, 0.1, "ceiling", id="a run that falls apart does not open the gate"),
        pytest.param(1e-9, 1e-5, "floor", id="a run that is on-policy does not close it"),
    ],
)
def test_the_bound_stays_within_floor_and_ceiling(k3: float, end: float, limit: str) -> None:
    policy, last = stream.K3, None
    for seed in range(20):
        verdict = proposed(policy, stream.sample(stream.K3, seed=seed, k3=k3), anchor=stream.K3)
        if isinstance(verdict, BoundProposal):
            policy, last = verdict.policy, verdict.moves[0].limit
    assert policy.criteria[0].upper == pytest.approx(end)
    assert last is limit
    assert verdict.reason is NoChangeReason.AT_LIMIT


def test_the_adapted_policy_has_one_name_for_ever_and_parses_again() -> None:
    first = proposed(upper(0.08), stream.sample(stream.K3))
    second = proposed(first.policy, stream.sample(stream.K3), anchor=stream.K3)
    assert first.policy.name == second.policy.name == "k3 (adapted)"
    assert Policy.parse(second.policy.spec()) == second.policy
    assert second.evidence()["moves"][0]["limit"] == "factor"
    assert "mask rate" in second.reason


class Run:
    """A simulated run under the controller: 256 sequences a step, an update every 16 steps."""

    def __init__(self, policy: Policy, *, seed: int = 0) -> None:
        self.policy = self.anchor = policy
        self.random = np.random.default_rng(seed)
        self.window: deque[PolicySample] = deque(maxlen=SETTING.window_sequences // 256)
        self.steps = 0
        self.reaches: list[float] = []
        self.rates: list[float] = []

    def train(self, steps: int, *, k3: Callable[[int], float] = lambda _: 0.002) -> None:
        for step in range(steps):
            columns = stream.batch(self.random, k3=k3(step))
            self.rates.append(decide(columns, self.policy).mask_rate)
            self.window.append(PolicySample.of(columns, self.policy))
            self.steps += 1
            if self.steps % SETTING.every_steps == 0:
                self._update()

    def _update(self) -> None:
        verdict = proposed(self.policy, PolicySample.merge(self.window), anchor=self.anchor)
        if isinstance(verdict, BoundProposal):
            self.policy = verdict.policy
        self.reaches.append(self.policy.criteria[0].upper_compared or math.nan)


@pytest.mark.parametrize(
    "policy",
    [upper(0.04), *(pytest.param(other, marks=pytest.mark.slow) for other in (upper(0.001), stream.GEO, stream.BOTH))],
    ids=str,
)
def test_a_run_ends_within_a_tenth_of_the_target_and_does_not_swing(policy: Policy) -> None:
    run = Run(policy)
    run.train(1100)
    settled = np.array(run.reaches[40:])
    assert np.mean(run.rates[640:]) == pytest.approx(0.05, rel=0.1)
    assert settled.std() / settled.mean() < 0.03
    changes = np.sign(np.diff(settled))
    turns = np.count_nonzero(changes[:-1] * changes[1:] < 0)
    assert turns <= len(settled) // 4


def test_a_drifting_run_is_followed() -> None:
    run = Run(upper(stream.k3_quantile(0.05)))
    run.train(1000, k3=lambda step: 0.002 * 4.0 ** (step / 1000))
    assert np.mean(run.rates[160:]) == pytest.approx(0.05, rel=0.25)
    assert run.reaches[-1] / run.reaches[0] == pytest.approx(4.0, rel=0.2)


@pytest.mark.parametrize(
    ("reason", "given"),
    [
        (NoChangeReason.PINNED, {"current": replace(BY_A_PERSON, pinned=True)}),
        (NoChangeReason.STALLED, {"is_stalled": True}),
        (NoChangeReason.TOO_FEW, {"sample": None}),
    ],
)
def test_a_run_that_is_pinned_stalled_or_without_readable_sequences_keeps_its_bounds(
    reason: NoChangeReason, given: dict[str, Any]
) -> None:
    usual = {"sample": LARGE_SAMPLE, "current": BY_A_PERSON, "anchor": stream.K3, "setting": SETTING}
    assert propose(**usual | given).reason is reason


def test_a_proposal_becomes_a_version_with_author_reason_and_evidence() -> None:
    proposal = proposed(stream.K3, LARGE_SAMPLE)
    version = version_of_proposal(proposal, current=BY_A_PERSON, now=7.0)
    assert (version.author, version.created_at, version.pinned) == ("trmon:target_mask_rate", 7.0, False)
    assert version.is_adapted
    assert version.reason == proposal.reason
    assert version.evidence["replaces"] == stream.K3.hash
    assert version.evidence["n_sequences"] == 4096


def test_the_anchor_is_the_newest_version_not_made_by_a_controller() -> None:
    start = default_version(now=0.0)
    adapted = replace(BY_A_PERSON, policy=stream.GEO, author="trmon:target_mask_rate")
    assert anchor_of([start]) == start.policy
    assert anchor_of([start, adapted, adapted]) == start.policy
    assert anchor_of([start, BY_A_PERSON, adapted]) == stream.K3


POLICY = preset("trm_max")


def sample(n: int = 512, *, tokens: int = 4096) -> PolicySample:
    columns = stream.batch(np.random.default_rng(0), n=n)
    columns.by_name["n_tokens"] = np.full(n, tokens)
    return PolicySample.of(columns, POLICY)


def test_at_4096_tokens_it_asks_for_almost_nothing() -> None:
    verdict = recommend(sample(), policy=POLICY, gain=2.5)
    delta = max_delta(horizon=4096, budget=0.25)
    assert delta < 1e-6
    uppers = {(c.statistic, c.where): c.upper for c in verdict.policy.criteria}
    assert uppers["max_kl", "kl_exact"] == pytest.approx(delta)
    assert uppers["max_binary_kl", "kl_not_exact"] == pytest.approx(delta + CERTIFICATE_MARGIN)
    assert uppers["max_abs_d", "kl_not_exact"] == 0.5
    assert verdict.basis == {"gain": 2.5, "horizon": 4096, "delta": pytest.approx(delta)}
    assert verdict.mask_rate_after >= verdict.mask_rate_before


@pytest.mark.parametrize(
    ("given", "policy", "gain", "reason"),
    [
        pytest.param(sample(), POLICY, 0.0, NoChangeReason.NO_GAIN, id="nothing won, no budget"),
        pytest.param(sample(), POLICY, -0.2, NoChangeReason.NO_GAIN, id="a loss"),
        pytest.param(sample(), POLICY, math.nan, NoChangeReason.NO_GAIN, id="no rewards"),
        pytest.param(sample(255), POLICY, 0.5, NoChangeReason.TOO_FEW, id="too few sequences"),
        pytest.param(
            stream.sample(stream.GEO), stream.GEO, 0.5, NoChangeReason.NOTHING_TO_MOVE, id="no bound on token KL"
        ),
    ],
)
def test_nothing_is_recommended_and_it_says_why(
    given: PolicySample, policy: Policy, gain: float, reason: NoChangeReason
) -> None:
    assert recommend(given, policy=policy, gain=gain).reason is reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_mask_rate", 0.0),
        ("target_mask_rate", 0.6),
        ("target_mask_rate", float("nan")),
        ("window_sequences", 255),
        ("window_sequences", 65_537),
        ("every_steps", 0),
        ("every_steps", 10**30),
        ("floor_factor", 0.0),
        ("floor_factor", 1.5),
        ("ceiling_factor", 0.9),
        ("ceiling_factor", float("inf")),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        AdaptationSetting(**{field: value})


def test_the_oldest_leave_as_soon_as_the_rest_is_enough() -> None:
    window = SampleWindow(n_sequences=600)
    for step in range(5):
        window = window.with_sample((1, step), stream.sample(stream.K3, n=256, seed=step))
    assert list(window.parts) == [(1, 2), (1, 3), (1, 4)]
    whole = window.sample()
    assert len(whole) == 768


def test_the_last_update_of_a_step_replaces_those_before_it() -> None:
    first, last = (stream.sample(stream.K3, n=256, seed=seed) for seed in (0, 1))
    window = SampleWindow(n_sequences=600).with_sample((1, 0), first).with_sample((1, 0), last)
    whole = window.sample()
    assert np.array_equal(whole.statistics, last.statistics)


def test_no_more_history_is_read_than_fits() -> None:
    asked: list[int] = []

    def history() -> Iterator[tuple[StepKey, PolicySample]]:
        for step in range(9, -1, -1):
            asked.append(step)
            yield (1, step), stream.sample(stream.K3, n=256, seed=step)

    window = SampleWindow.of(history(), n_sequences=512)
    assert asked == [9, 8]
    assert list(window.parts) == [(1, 8), (1, 9)]


def test_nothing_is_no_sample() -> None:
    assert SampleWindow(n_sequences=256).sample() is None
    assert sample_of_reports([], stream.K3) is None


def test_a_batch_that_lacks_what_the_policy_needs_is_left_out() -> None:
    columns = stream.batch(np.random.default_rng(0))
    del columns.by_name["advantage"]
    assert sample_of_reports([columns], preset("opsm")) is None
    assert sample_of_reports([columns], preset("trm")) is not None
    only_rewards = statistics.columns(mask=np.ones((2, 3)), rewards=[1.0, 0.0])
    assert sample_of_reports([only_rewards], preset("trm_avg")) is None


def test_empty_sequences_are_left_out_and_invalid_ones_counted() -> None:
    columns = stream.batch(np.random.default_rng(0), n=8)
    columns.by_name["n_tokens"] = np.array([0, 16, 16, 16, 16, 16, 16, 16])
    columns.by_name["n_invalid"] = np.array([0, 2, 0, 0, 0, 0, 0, 0])
    found = PolicySample.of(columns, stream.K3)
    assert (len(found), found.n_invalid, found.has_nan) == (6, 1, True)
