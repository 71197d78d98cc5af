"""Tests policies: of a trainer that starts, of a person and of the controller, each version is added once or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import CODE, NOW, commit
from trmon.domain.access import EVERYTHING
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.store import Store
from trmon_client.core.policies.policy import preset

GEO = preset("geo_mask")


def asked(store: Store, run_id: int, *, at: float) -> PolicyVersion:
    """Return the version that a start makes current, from the version that is current now."""
    version = version_from_trainer(store.policies.current(run_id), GEO, now=at)
    assert version is not None
    return version


def test_ingest_and_runner_that_adopt_a_start_at_once_add_one_version(store: Store, run_id: int) -> None:
    by_ingest, by_runner = (asked(store, run_id, at=NOW + i) for i in range(2))
    store.policies.put(run_id, by_ingest).result()
    commit(store, run_id, policy=by_runner)
    assert store.policies.history(run_id) == [by_ingest]


def test_a_start_that_is_adopted_late_does_not_replace_what_a_person_set(store: Store, run_id: int) -> None:
    late = asked(store, run_id, at=NOW)
    by_person = replace(default_version(now=NOW), policy=preset("token_veto"), author="ann", reason="safer")
    store.policies.put(run_id, by_person).result()
    store.policies.put(run_id, late).result()
    assert store.policies.history(run_id) == [by_person]


SETTING = AdaptationSetting(mode=AdaptationMode.APPLY, target_mask_rate=0.1, every_steps=4)
MINE = PolicyVersion(policy=preset("geo_mask"), shadows=(), author="ann", reason="", created_at=NOW)


def adapted(over: PolicyVersion) -> PolicyVersion:
    evidence = {"replaces": over.policy.hash, "n_sequences": 512}
    return replace(MINE, policy=preset("seq_mis"), author="trmon:target_mask_rate", evidence=evidence)


def test_adaptation_is_off_by_default_and_for_another_project(store: Store, run_id: int) -> None:
    assert store.adaptations.get(run_id) == AdaptationSetting()
    store.adaptations.put(run_id, SETTING, access=EVERYTHING, now=NOW).result()
    store.adaptations.put(run_id, replace(SETTING, mode=AdaptationMode.RECOMMEND), access=EVERYTHING, now=NOW).result()
    assert store.adaptations.get(run_id) == replace(SETTING, mode=AdaptationMode.RECOMMEND)
    assert store.adaptations.get(run_id, access=CODE) == AdaptationSetting()


def test_a_controllers_version_keeps_its_evidence(store: Store, run_id: int) -> None:
    version = adapted(default_version(now=NOW))
    commit(store, run_id, policy=version)
    assert store.policies.current(run_id) == version


@pytest.mark.parametrize(
    "since",
    [
        pytest.param(replace(MINE, policy=preset("token_veto")), id="another policy was activated"),
        pytest.param(replace(MINE, pinned=True), id="the base policy was pinned"),
    ],
)
def test_a_manual_change_takes_precedence_over_the_controller(store: Store, run_id: int, since: PolicyVersion) -> None:
    store.policies.put(run_id, MINE).result()
    store.policies.put(run_id, since).result()
    commit(store, run_id, policy=adapted(MINE))
    assert store.policies.current(run_id) == since
