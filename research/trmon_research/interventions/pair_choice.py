"""Which configurations are paired: those of a sweep whose runs collapsed, and as many whose runs did not."""

from __future__ import annotations

from collections.abc import Iterable

from trmon_research.interventions.pair_record import PairPlan, PairSetup
from trmon_research.sweep.run_file import RunRecord


def choose_pairs(records: Iterable[RunRecord], setup: PairSetup, *, limit: int | None = None) -> list[PairPlan]:
    """Return the pairs of a sweep's finished runs, one that collapsed and one that did not in turn.

    The order is that of the configurations' hashes: as good as random, and a smaller limit gives the first of them.
    Args: limit: pairs of each kind.
    """
    ordered = sorted(records, key=lambda record: record.config.content_hash)
    collapsed = [record for record in ordered if record.outcome.label.onset is not None][:limit]
    others = [record for record in ordered if record.outcome.label.onset is None][: len(collapsed)]
    plans = [PairPlan(config=each.config, setup=setup, collapses=True) for each in collapsed]
    healthy = [PairPlan(config=each.config, setup=setup, collapses=False) for each in others]
    paired = [plan for pair in zip(plans, healthy, strict=False) for plan in pair]
    return paired + plans[len(healthy) :]
