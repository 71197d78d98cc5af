"""The key and the subject of a delivery."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.alerts.alert_builders import ALERT, delivery_of


def test_a_retry_repeats_the_key_and_a_reminder_has_a_new_one() -> None:
    first = delivery_of(dedup_key="x")
    assert [first.key, replace(first, attempts=1).key, replace(first, rounds=2).key] == ["x", "x", "x:2"]


def test_the_subject_is_the_episode_or_without_one_the_delivery() -> None:
    assert delivery_of().subject == ("hook", ALERT.episode)
    assert delivery_of(id=9, episode=None).subject == ("hook", 9)
