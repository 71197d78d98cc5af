"""Merging a batch's reports."""

from __future__ import annotations

import numpy as np
import pytest

from tests.domain.pipeline.stages.closings import closing
from tests.domain.trainer import made, report
from trmon.domain.pipeline.merge import merge_reports
from trmon_client.core import signals, statistics
from trmon_client.core.columns import Columns


def only(pair: str) -> Columns:
    """Return columns with one pair."""
    content = made()
    others = [other for other in content.pairs if other != pair]
    kept = {name: array for name, array in content.items() if not name.startswith(tuple(others))}
    return Columns(kept, {pair: content.histograms[pair]})


def without_pairs() -> Columns:
    """Return columns of rewards and lengths only."""
    return statistics.columns(mask=np.ones((8, 32), bool), rewards=np.random.default_rng(0).random(8))


def test_ranks_and_chunks_are_concatenated_in_order() -> None:
    reports = [
        report(0, rank=1, world_size=2),
        report(0, rank=0, world_size=2),
        report(0, rank=0, chunk=1, world_size=2),
    ]
    merged = merge_reports(closing(*reports))
    assert merged.columns.n_sequences == 24
    assert [(part.stored.key.rank, part.stored.key.chunk, part.rows) for part in merged.parts] == [
        (0, 0, slice(0, 8)),
        (0, 1, slice(8, 16)),
        (1, 0, slice(16, 24)),
    ]


def test_a_report_without_the_pair_of_the_others_has_invalid_tokens_and_keeps_its_rewards() -> None:
    reports = [
        report(0, content=only("staleness"), policy=None),
        report(0, content=only("mismatch"), policy=None, chunk=1),
        report(0, content=only("mismatch"), policy=None, chunk=2),
    ]
    merged = merge_reports(closing(*reports))
    assert merged.columns.pairs == ("mismatch",)
    assert [part.rows for part in merged.parts] == [slice(0, 8), slice(8, 16), slice(16, 24)]
    assert merged.columns["n_tokens"].tolist() == [0] * 8 + [32] * 16
    assert merged.columns["n_invalid"].tolist() == [32] * 8 + [0] * 16
    assert np.isfinite(merged.columns["reward"]).all()
    alone = signals.compute(Columns.merge(*(part.columns for part in merged.parts[1:])))
    found = signals.compute(merged.columns)
    assert found.pop("invalid_fraction") == pytest.approx(1 / 3)
    assert found == pytest.approx({name: alone[name] for name in found}, nan_ok=True)


def test_reports_that_share_the_primary_pair_keep_the_pairs_that_all_have() -> None:
    merged = merge_reports(
        closing(report(0, policy=None), report(0, content=only("total"), policy=None, chunk=1)),
    )
    assert merged.columns.pairs == ("total",)
    assert not merged.columns["n_invalid"].any()


@pytest.mark.parametrize("n_without", [1, 3])
def test_reports_without_any_pair_never_hide_the_others(n_without: int) -> None:
    parts = [report(0, content=without_pairs(), policy=None, chunk=chunk) for chunk in range(n_without)]
    merged = merge_reports(closing(*parts, *(report(0, policy=None, chunk=n_without + i) for i in range(2))))
    assert merged.columns.n_sequences == 8 * (n_without + 2)
    assert merged.columns.pairs == (("mismatch", "staleness", "total") if n_without < 2 else ())
    assert np.isfinite(merged.columns["reward"]).all()


def test_scalars_of_rank_zero_and_of_later_chunks_win() -> None:
    merged = merge_reports(
        closing(
            report(0, rank=0, world_size=2, scalars={"lr": 1.0, "loss": 1.0}),
            report(0, rank=0, chunk=1, world_size=2, scalars={"loss": 2.0}),
            report(0, rank=1, world_size=2, scalars={"lr": 9.0, "memory": 3.0}),
        )
    )
    assert merged.scalars == {"lr": 1.0, "loss": 2.0, "memory": 3.0}
