"""The catalogue of the service's own signals."""

from __future__ import annotations

import math

import pytest

from tests.domain.pipeline.closings import closing
from tests.domain.trainer import report
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.signals.derived_signals import ALIASES, DERIVED, SHADOW_PREFIX, canonical_value
from trmon.domain.signals.run_features import FEATURE_SIGNALS
from trmon_client.core.signals.batch_signals import SIGNALS


def test_every_signal_of_a_row_is_in_one_catalogue_and_every_derived_one_is_made() -> None:
    row = close_batch(closing(report(0))).row
    own = {name for name in row.signals if not name.startswith(SHADOW_PREFIX)} - SIGNALS.keys()
    assert own <= DERIVED.keys()
    assert DERIVED.keys() - own <= {
        *FEATURE_SIGNALS,
        "router_replay",
        "sequence_weight_mean",
        "sequence_weight_ess",
        "minorizer",
        "minorizer_vacuous",
        "turn_mask_rate",
        "turn_mask_rate_tokens",
    }, "features need a longer run, weights a policy, a minorizer exact KL, mask rates of turns their ids"
    assert not DERIVED.keys() & SIGNALS.keys()


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
