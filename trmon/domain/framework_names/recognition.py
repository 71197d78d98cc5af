"""Recognises the framework that wrote a log by the names of its metrics."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from trmon.domain.framework_names.areal import AREAL
from trmon.domain.framework_names.metric_table import MetricTable
from trmon.domain.framework_names.ms_swift import MS_SWIFT
from trmon.domain.framework_names.nemo_rl import NEMO_RL
from trmon.domain.framework_names.openrlhf import OPENRLHF
from trmon.domain.framework_names.prime_rl import PRIME_RL
from trmon.domain.framework_names.skyrl import SKYRL
from trmon.domain.framework_names.slime import SLIME
from trmon.domain.framework_names.trl import TRL
from trmon.domain.framework_names.verl import VERL

FRAMEWORKS: tuple[MetricTable, ...] = (VERL, TRL, SLIME, PRIME_RL, NEMO_RL, OPENRLHF, SKYRL, AREAL, MS_SWIFT)
"""All tables; of two that know equally many names of a log, the earlier one is taken."""


def recognise(names: Collection[str]) -> MetricTable | None:
    """Return the table that knows most of the names; None if none knows any."""
    return _recognised(tuple(names))


@lru_cache(maxsize=512)
def _recognised(names: tuple[str, ...]) -> MetricTable | None:
    counts = [sum(table.name_in_table(name) is not None for name in names) for table in FRAMEWORKS]
    best = max(counts)
    return FRAMEWORKS[counts.index(best)] if best else None
