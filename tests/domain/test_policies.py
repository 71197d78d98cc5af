"""The policies that reports may name."""

from __future__ import annotations

from trmon.domain.policies import PolicyRegistry, default_version
from trmon_client.core.policies.policy import preset


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
