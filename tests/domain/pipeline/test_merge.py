"""Merging a batch's reports."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.pipeline.closings import closing
from tests.domain.trainer import made, report
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.merge import measure_batch, merge_reports
from trmon_client.core import signals, statistics
from trmon_client.core.column_schema import KlIs
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns


def only(pair: str) -> Columns:
    content = made()
    others = [other for other in content.pairs if other != pair]
    kept = {name: array for name, array in content.items() if not name.startswith(tuple(others))}
    return Columns(kept, {pair: content.histograms[pair]})


def without_pairs() -> Columns:
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
    closed = closing(
        report(0, rank=0, world_size=2, scalars={"lr": 1.0, "loss": 1.0}),
        report(0, rank=0, chunk=1, world_size=2, scalars={"loss": 2.0}),
        report(0, rank=1, world_size=2, scalars={"lr": 9.0, "memory": 3.0}),
    )
    assert close_batch(closed).row.scalars == {"lr": 1.0, "loss": 2.0, "memory": 3.0}


def measured(content: Columns | None = None, **fields: Any) -> dict[str, float]:
    content = content or made()
    told = {"kl_is": content.kl_is, "kl_pair": content.kl_pair, **fields}
    return measure_batch(merge_reports(closing(report(0, content=content, policy=None, **told))).columns)


def with_kl(largest: Any, total: Any = None, *, kl_is: KlIs = "exact", **changed: Any) -> Columns:
    content = made()
    given = changed | {"max_kl": np.full(8, largest, "<f4")} | ({} if total is None else {"sum_kl": total})
    return replace(content, by_name={**content.by_name, **given}, kl_is=kl_is, kl_pair="total")


def test_bounds_are_there_and_nan_when_kl_is_sampled_below_zero_or_without_its_sum() -> None:
    found = measured()
    assert math.isnan(found["bound_adaptive"])
    assert math.isnan(found["bound_trpo"])
    assert math.isnan(measured(with_kl(-1.0, np.full(8, -1.0)))["bound_adaptive"])
    largest_alone = measured(with_kl(0.0))
    assert math.isnan(largest_alone["bound_adaptive"])
    assert largest_alone["kl_max"] == 0.0


@pytest.mark.parametrize(
    ("versions", "old_version", "lag"),
    [
        pytest.param((4, 6), 5, 2.0, id="what of the whole lag is not between the engines"),
        pytest.param((4, 6), None, 0.0, id="pi_old at the trainer's present weights"),
        pytest.param(None, None, 0.0, id="a trainer that names no versions"),
    ],
)
def test_staleness_lag_is_between_the_two_policies_of_the_trainer(
    versions: tuple[int, int] | None, old_version: int | None, lag: float
) -> None:
    logprobs = dict.fromkeys(("rollout_logprobs", "old_logprobs", "logprobs"), np.full((2, 3), -1.0))
    content = columns(**logprobs, mask=np.ones((2, 3), bool), versions=versions and np.array(versions))
    assert measured(content, trainer_version=7, old_version=old_version)["staleness_lag"] == lag


@pytest.mark.parametrize(
    ("kl_is", "kl", "vacuous"),
    [
        pytest.param("exact", 0.1, 1.0, id="a large KL certifies nothing"),
        pytest.param("exact", 0.0, 0.0, id="no KL, no error"),
        pytest.param("sampled", 0.1, math.nan, id="samples prove nothing"),
    ],
)
def test_whether_the_bound_is_vacuous(kl_is: KlIs, kl: float, vacuous: float) -> None:
    found = measured(with_kl(kl, np.full(8, 32 * kl), kl_is=kl_is))
    assert found["bound_vacuous"] == pytest.approx(vacuous, nan_ok=True)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, math.inf, -math.inf, math.nan])
def test_the_largest_numbers_and_none_are_measured_without_a_warning(value: float) -> None:
    sums = {name: np.full_like(column, value) for name, column in made().items() if name.startswith("total_sum_")}
    assert "bound_adaptive" in measured(with_kl(math.inf, np.where(np.arange(8) % 2, value, -value), **sums))
