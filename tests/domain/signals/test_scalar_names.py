"""Canonical names of trainer scalars."""

from __future__ import annotations

import math

import pytest

from trmon.domain.signals.derived_signals import ALIASES, canonical_value


@pytest.mark.parametrize(("name", "alias"), [(name, alias) for name, known in ALIASES.items() for alias in known])
def test_each_alias_gives_the_canonical_value(name: str, alias: str) -> None:
    assert canonical_value(name, signals={}, scalars={alias: 0.5}) == 0.5


def test_a_measured_signal_precedes_a_scalar_and_the_canonical_name_precedes_an_alias() -> None:
    scalars = {"reward": 0.1, "reward_mean": 0.2}
    assert canonical_value("reward_mean", signals={"reward_mean": 0.3}, scalars=scalars) == 0.3
    assert canonical_value("reward_mean", signals={"reward_mean": math.nan}, scalars=scalars) == 0.2
    assert canonical_value("reward_mean", signals={}, scalars={"reward": 0.1}) == 0.1


def test_what_was_not_sent_is_nan_and_a_sent_nan_stays_one() -> None:
    assert math.isnan(canonical_value("entropy", signals={}, scalars={"lr": 1.0}))
    assert math.isnan(canonical_value("loss", signals={}, scalars={"loss": math.nan, "train_loss": 1.0}))


def test_no_alias_means_two_things() -> None:
    aliases = [alias for name, known in ALIASES.items() for alias in (name, *known)]
    assert len(aliases) == len(set(aliases))
