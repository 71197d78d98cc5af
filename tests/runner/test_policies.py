"""Policies and what they decide, pass by pass: asked for, refused, replayed, unknown, shadowed."""

from __future__ import annotations

from tests.domain.trainer import report
from tests.runner.watched_run import ORIGIN, Watched, finish
from trmon.domain.batches.batch import PolicyRole
from trmon.domain.policies.policy_version import PolicyVersion
from trmon_client.core import wire
from trmon_client.core.policies.acceptance import preset


def test_the_trainers_policy_becomes_the_runs_unless_a_person_set_one() -> None:
    watched = Watched()
    start = wire.Start(**ORIGIN, owner="me", tags=["dapo"], policy=preset("geo_mask").spec(), mode="enforce")
    watched.hear(start, at=0.0)
    assert watched.log.versions[-1].author == "trainer"
    assert (watched.log.stored_run.owner, watched.log.stored_run.mode) == ("me", "enforce")
    watched.log.versions.append(
        PolicyVersion(policy=preset("trm"), shadows=(), author="ada", reason="too loose", created_at=5.0)
    )
    watched.hear(replace_launch(start), at=10.0)
    assert watched.log.versions[-1].author == "ada"


def replace_launch(start: wire.Start) -> wire.Start:
    """Return the start of another launch."""
    return wire.Start(**{**{name: getattr(start, name) for name in start.__struct_fields__}, "launch": "launch-2"})


def test_a_policy_that_cannot_be_read_is_refused_and_said() -> None:
    watched = Watched()
    watched.hear(wire.Start(**ORIGIN, policy={"name": "mine", "criteria": []}), at=0.0)
    assert not watched.log.versions
    assert "criteria" in watched.log.events[0].data["refused"]


def test_bits_that_the_replay_does_not_give_are_counted_under_equal_semantics_only() -> None:
    wrong = wire.pack_bits([False] * 8)
    for semantics, expected in ((wire.SEMANTICS_VERSION, 8), (99, 0)):
        watched = Watched()
        watched.hear(report(0, accepted=wrong, semantics=semantics), finish(0), at=0.0)
        (row,) = watched.log.rows.values()
        assert (row.mismatches, row.signals["mask_rate"]) == (expected, 1.0)
        assert watched.log.decisions[row.key, preset("trm").hash].counts == {"accepted": 0, "disagreement": 8}


def test_a_policy_nobody_knows_is_not_replayed_but_counted() -> None:
    watched = Watched()
    watched.hear(report(0, policy=preset("trm", delta=0.007)), finish(0), at=0.0)
    (row,) = watched.log.rows.values()
    assert row.mismatches == 0
    assert watched.counted.passes[-1].unreplayed_reports == 1


def test_shadows_are_decided_and_recorded() -> None:
    watched = Watched()
    watched.hear(report(0), finish(0), at=0.0)
    roles = {decision.policy_name: decision.role for decision in watched.log.decisions.values()}
    assert roles == {
        "trm": PolicyRole.ACTIVE,
        "trm_max": PolicyRole.SHADOW,
        "geo_mask": PolicyRole.SHADOW,
        "token_veto": PolicyRole.SHADOW,
    }
    assert set(watched.view.mask_rates) == set(roles)
