"""Merging a batch's reports."""

from __future__ import annotations

from tests.domain.pipeline.stages.closings import closing
from tests.domain.trainer import made, report
from trmon.domain.pipeline.stages.merge import merge_reports
from trmon_client.core.columns.columns import Columns


def only(pair: str) -> Columns:
    """Return columns with one pair."""
    content = made()
    others = [other for other in content.pairs if other != pair]
    kept = {name: array for name, array in content.items() if not name.startswith(tuple(others))}
    return Columns(kept, {pair: content.histograms[pair]})


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


def test_reports_that_share_no_pair_with_the_first_are_left_out() -> None:
    merged = merge_reports(
        closing(
            report(0, content=only("mismatch"), policy=None),
            report(0, content=only("staleness"), policy=None, chunk=1),
        )
    )
    assert merged.columns.pairs == ("mismatch",)
    assert [part.stored.key.chunk for part in merged.parts] == [0]


def test_scalars_of_rank_zero_and_of_later_chunks_win() -> None:
    merged = merge_reports(
        closing(
            report(0, rank=0, world_size=2, scalars={"lr": 1.0, "loss": 1.0}),
            report(0, rank=0, chunk=1, world_size=2, scalars={"loss": 2.0}),
            report(0, rank=1, world_size=2, scalars={"lr": 9.0, "memory": 3.0}),
        )
    )
    assert merged.scalars == {"lr": 1.0, "loss": 2.0, "memory": 3.0}
