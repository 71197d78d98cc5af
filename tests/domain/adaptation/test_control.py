"""From a setting and a sample to a policy version: pins, anchors and evidence."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.adaptation import stream
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting, BoundProposal, NoChange, NoChangeReason
from trmon.domain.adaptation.target_mask_rate import anchor_of, run_controller, version_of_proposal
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer

APPLY = AdaptationSetting(mode=AdaptationMode.APPLY)
BY_A_PERSON = PolicyVersion(policy=stream.K3, shadows=(), author="ann", reason="", created_at=1.0)


def verdict_of(current: PolicyVersion) -> BoundProposal | NoChange:
    return run_controller(APPLY, stream.sample(stream.K3), current=current, anchor=stream.K3, is_stalled=False)


def test_a_pinned_version_stays() -> None:
    verdict = verdict_of(replace(BY_A_PERSON, pinned=True))
    assert isinstance(verdict, NoChange)
    assert verdict.reason is NoChangeReason.PINNED


def test_a_run_without_readable_sequences_keeps_its_bounds() -> None:
    verdict = run_controller(APPLY, None, current=BY_A_PERSON, anchor=stream.K3, is_stalled=False)
    assert isinstance(verdict, NoChange)
    assert verdict.reason is NoChangeReason.TOO_FEW


def test_a_proposal_becomes_a_version_with_author_reason_and_evidence() -> None:
    proposal = verdict_of(BY_A_PERSON)
    assert isinstance(proposal, BoundProposal)
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


def test_a_restart_of_the_trainer_keeps_the_adapted_version() -> None:
    adapted = replace(BY_A_PERSON, author="trmon:target_mask_rate")
    assert version_from_trainer(adapted, stream.GEO, now=9.0) is None
