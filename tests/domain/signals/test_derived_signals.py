"""The catalogue of the service's own signals."""

from __future__ import annotations

from tests.domain.pipeline.closings import closing
from tests.domain.trainer import report
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.signals.derived_signals import DERIVED, SHADOW_PREFIX
from trmon.domain.signals.run_features import FEATURE_SIGNALS
from trmon_client.core.signals.batch_signals import SIGNALS


def test_every_signal_of_a_row_is_in_one_catalogue_and_every_derived_one_is_made() -> None:
    row = close_batch(closing(report(0))).row
    own = {name for name in row.signals if not name.startswith(SHADOW_PREFIX)} - SIGNALS.keys()
    assert own <= DERIVED.keys()
    assert DERIVED.keys() - own <= {
        *FEATURE_SIGNALS,
        "baseline",
        "sequence_weight_mean",
        "sequence_weight_ess",
        "minorizer",
        "minorizer_vacuous",
        "turn_mask_rate",
        "turn_mask_rate_tokens",
    }, "features need a longer run, weights a policy, a minorizer exact KL, turns their ids, a baseline a change"
    assert not DERIVED.keys() & SIGNALS.keys()
