"""The policies that reports may name."""

from __future__ import annotations

from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon.domain.policies.policy_version import default_version
from trmon_client.core.policies.acceptance import preset


def test_presets_the_current_version_and_those_before_it_are_known() -> None:
    moved = preset("trm", delta=0.02)
    book = PolicyRegistry.of(default_version(now=0.0))
    assert book.find(preset("seq_mis").hash) == preset("seq_mis")
    assert book.find(preset("icepop").hash) == preset("icepop")
    assert book.find(moved.hash) is None
    assert book.with_policy(moved).find(moved.hash) == moved
    assert book.with_policy(moved).with_current(default_version(now=1.0)).find(moved.hash) == moved


def test_a_report_that_names_none_was_decided_by_the_current_one() -> None:
    assert PolicyRegistry.of(default_version(now=0.0)).find(None) == preset("trm")
