"""What is asked of a store is what the findings read."""

from __future__ import annotations

from collections.abc import Iterator

from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.conditions import HistoryAllOf, HistoryAnyOf, HistoryCondition, HistoryLimit, HistoryNot
from trmon.domain.diagnosis.criteria import Thresholds, finding_conditions, nucleus_sampling, unhealthy
from trmon.domain.diagnosis.features import REQUIRED_SIGNALS, with_features


def limits_in(condition: HistoryCondition) -> Iterator[HistoryLimit]:
    match condition:
        case HistoryLimit():
            yield condition
        case HistoryNot():
            yield from limits_in(condition.part)
        case HistoryAnyOf() | HistoryAllOf():
            for part in condition.parts:
                yield from limits_in(part)


def test_every_limit_reads_what_is_asked_for_or_is_made_of_it() -> None:
    limits = Thresholds()
    conditions = [*finding_conditions(limits).values(), nucleus_sampling(limits), unhealthy(limits)]
    names = {limit.signal for condition in conditions for limit in limits_in(condition)}
    assert len(names) > 15
    history = run(saturated_fraction=0.1, grad_variance=1.0)
    made = with_features(history).values.keys() - history.values.keys()
    stems = {name.removeprefix("mismatch_") for name in REQUIRED_SIGNALS}
    assert names - stems - made - {"staleness_kl_k3_early"} == set()
