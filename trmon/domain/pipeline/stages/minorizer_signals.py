"""The minorizer of a batch as signals, for runs that send logits and declare centred advantages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trmon.domain.diagnosis.history import config_number
from trmon_client.core.arrays import Array
from trmon_client.core.bounds import minorizer
from trmon_client.core.columns import Columns

CENTRED_OPTION = "advantages_centred"
RANGE_OPTION = "reward_range"
"""Keys of a run's configuration: whether its advantages are R - b, undivided; and the range of its rewards, else 1."""


@np.errstate(all="ignore")
def minorizer_signals(
    columns: Columns, accepted: Array, *, config: Mapping[str, Any], soft_weights: Array | None = None
) -> dict[str, float]:
    """Return L - adaptive on the sequences in the loss, and whether its bound is vacuous; nothing where not declared.

    Args: accepted: [B] bool; soft_weights: [B], M of a soft policy, in its place.
    Source: [TRM] section 3; formulas, section 7.
    """
    if config.get(CENTRED_OPTION) is not True or "max_kl" not in columns or "advantage" not in columns:
        return {}
    reward_range = config_number(config, RANGE_OPTION)
    try:
        found = minorizer(
            columns, accepted=accepted, weights=soft_weights, centred=True, reward_range=reward_range or 1.0
        )
    except ValueError:  # a client sent a KL below zero, or the run declares a range below it
        return {"minorizer": math.nan, "minorizer_vacuous": math.nan}
    vacuous = math.nan if found.vacuous is None else float(found.vacuous)
    return {"minorizer": found.value, "minorizer_vacuous": vacuous}
