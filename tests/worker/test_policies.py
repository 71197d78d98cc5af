"""Policies of a run: requested by the trainer, refused, replayed, unknown, and shadows."""

from __future__ import annotations

from tests.domain.trainer import report
from tests.worker.watched_run import ORIGIN, WatchedRun, finish
from trmon.domain.batches.batch import PolicyRole
from trmon.domain.policies import PolicyVersion
from trmon_client.core import wire
from trmon_client.core.policies.policy import preset


def test_the_trainers_policy_is_adopted_unless_a_person_set_one() -> None:
    watched = WatchedRun()
    start = wire.Start(**ORIGIN, owner="me", tags=["dapo"], policy=preset("geo_mask").spec(), mode="enforce")
    watched.receive(start, at=0.0)
    assert watched.log.versions[-1].author == "trainer"
    assert (watched.log.stored_run.owner, watched.log.stored_run.mode) == ("me", "enforce")
    watched.log.versions.append(
        PolicyVersion(policy=preset("trm"), shadows=(), author="ada", reason="too loose", created_at=5.0)
    )
    watched.receive(replace_launch(start), at=10.0)
    assert watched.log.versions[-1].author == "ada"


def replace_launch(start: wire.Start) -> wire.Start:
    """Return the start of another launch."""
    return wire.Start(**{**{name: getattr(start, name) for name in start.__struct_fields__}, "launch": "launch-2"})


def test_an_invalid_policy_is_refused_in_an_event() -> None:
    watched = WatchedRun()
    watched.receive(wire.Start(**ORIGIN, policy={"name": "mine", "criteria": []}), at=0.0)
    assert not watched.log.versions
    assert "criteria" in watched.log.events[0].data["refused"]


def test_a_report_of_an_unknown_policy_is_counted_as_unreplayed() -> None:
    watched = WatchedRun()
    watched.receive(report(0, policy=preset("trm", delta=0.007)), finish(0), at=0.0)
    (row,) = watched.log.rows.values()
    assert row.mismatches == 0
    assert watched.observer.passes[-1].unreplayed_reports == 1


def test_the_decisions_of_shadows_are_recorded() -> None:
    watched = WatchedRun()
    watched.receive(report(0, policy=preset("trm_auto")), finish(0), at=0.0)
    roles = {decision.policy_name: decision.role for decision in watched.log.decisions.values()}
    assert roles == {
        "trm_auto": PolicyRole.ACTIVE,
        "trm_max": PolicyRole.SHADOW,
        "geo_mask": PolicyRole.SHADOW,
        "token_veto": PolicyRole.SHADOW,
    }
    assert set(watched.view.mask_rates) == set(roles)
