"""Policy versions: the policy that a trainer asks for is one version, whoever adopts it first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW, start_intake
from trmon.domain.pipeline.run_update import Frontier, RunUpdate
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.store import Store
from trmon_client.core.policies.policy import preset

GEO = preset("geo_mask")


@pytest.fixture
def run_id(store: Store) -> int:
    return store.reports.append([start_intake()], now=NOW)[0].result().run_id


def asked(store: Store, run_id: int, *, at: float) -> PolicyVersion:
    """Return the version that a start makes current, from the version that is current now."""
    version = version_from_trainer(store.policies.current(run_id), GEO, now=at)
    assert version is not None
    return version


def test_ingest_and_runner_that_adopt_a_start_at_once_add_one_version(store: Store, run_id: int) -> None:
    by_ingest, by_runner = (asked(store, run_id, at=NOW + i) for i in range(2))
    store.policies.put(run_id, by_ingest).result()
    store.run_log.commit([RunUpdate(run_id=run_id, frontier=Frontier(), policy=by_runner)])[0].result()
    assert store.policies.history(run_id) == [by_ingest]


def test_a_start_that_is_adopted_late_does_not_replace_what_a_person_set(store: Store, run_id: int) -> None:
    late = asked(store, run_id, at=NOW)
    by_person = replace(default_version(now=NOW), policy=preset("token_veto"), author="ann", reason="safer")
    store.policies.put(run_id, by_person).result()
    store.policies.put(run_id, late).result()
    assert store.policies.history(run_id) == [by_person]
