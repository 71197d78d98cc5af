"""The merged reports of a batch, and the signals of its row, also of one that cannot be processed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.pipeline.closings import closing, parse_rules, pass_context
from tests.domain.trainer import finished, made, report
from trmon.domain.batches.batch import MAX_REASON_LENGTH, QuarantinePart
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.close_batch import close_batch, replay_row, withhold_batch
from trmon.domain.pipeline.merge import measure_batch, merge_reports
from trmon.domain.pipeline.state import PipelineState
from trmon_client.core import signals, statistics, wire
from trmon_client.core.column_schema import KlIs
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

SPOOLED = {number: wire.Losses(spooled_bytes=number) for number in (50, 100, 300)}
OTHERWISE = wire.pack_bits(~wire.unpack_bits(report(0).accepted or b"", 8))


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([report(0, finished=finished((0, None, 1)))], {}, id="a complete batch has zeros"),
        pytest.param([report(0, rank=1, world_size=4)], {"missing_ranks": 3.0, "incomplete": 1.0}, id="missing ranks"),
        pytest.param([report(0, chunk=1)], {"incomplete": 1.0}, id="a missing chunk"),
        pytest.param(
            [
                report(0, world_size=2, losses=SPOOLED[100]),
                report(0, chunk=1, world_size=2, losses=SPOOLED[300]),
                report(0, rank=1, world_size=2, losses=SPOOLED[50]),
            ],
            {"client_spooled_bytes": 350.0},
            id="spooled bytes are the largest of each rank summed",
        ),
        pytest.param([report(0, accepted=OTHERWISE)], {"decision_mismatches": 8.0}, id="another decision"),
    ],
)
def test_how_a_batch_arrived_is_in_its_signals(reports: list[wire.Report], expected: dict[str, float]) -> None:
    row = close_batch(closing(*reports)).row
    names = ("missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes")
    assert {name: row.signals[name] for name in names if row.signals[name]} == expected


SPOKEN = parse_rules("[{name: spoken, severity: warn, summary: s, immune_steps: 0, when: {absent: bound_trpo}}]")
UNSPEAKABLE = replace(SPOKEN, others=(replace(SPOKEN.others[0], summary="{nobody}"),))
"""A rule whose summary has an unknown field, so it fails after its condition was evaluated."""


def test_its_row_has_its_place_and_counts_but_no_signals_of_its_sequences() -> None:
    batch = closing(report(3), report(3, rank=1), pipeline_state=PipelineState(ordinal=4))
    row = withhold_batch(batch, OverflowError("too large")).row
    assert (row.key, row.ordinal, row.n_ranks, row.n_sequences) == (BatchKey(1, 3, None), 5, 2, 16)
    assert not row.complete
    [entry] = row.quarantined
    assert (entry.part, entry.place) == (QuarantinePart.BATCH, "the whole batch")
    assert entry.reason == "OverflowError: too large"
    assert row.signals["quarantined_parts"] == 1.0
    assert not any(name.startswith("mismatch") for name in row.signals)


def test_a_long_error_is_cut() -> None:
    row = withhold_batch(closing(report(0)), ValueError("x" * 10_000)).row
    assert len(row.quarantined[0].reason) == MAX_REASON_LENGTH


def test_the_batch_after_it_follows_it() -> None:
    first = withhold_batch(closing(report(0)), "why")
    second = close_batch(closing(report(1), pipeline_state=first.pipeline_state))
    assert (second.row.ordinal, second.pipeline_state.steps) == (2, 2)
    assert [alert.rule for alert in second.alerts] == ["batch_quarantined"]
    assert [delivery.receiver for delivery in second.deliveries] == ["hook"]
    assert second.row.signals["step_seconds"] == pytest.approx(10.0)


def test_its_alert_resolves_after_processed_steps() -> None:
    made = withhold_batch(closing(report(0)), "why")
    states = []
    for step in range(1, 24):
        made = close_batch(closing(report(step), pipeline_state=made.pipeline_state))
        events = [event for event in made.alert_events if event.identity.endswith("/batch_quarantined")]
        states += [(event.state.value, event.step) for event in events]
    assert states == [("firing", 0), ("resolved", 20)]


def test_a_row_that_cannot_be_folded_is_written_and_skipped() -> None:
    pipeline_state = PipelineState(ordinal=1, folded=BatchKey(1, 1, None))
    unable = closing(report(2), context=pass_context(rules=UNSPEAKABLE), pipeline_state=pipeline_state)
    with pytest.raises(KeyError):
        close_batch(unable)
    passed = withhold_batch(unable, "why")
    assert passed.row.quarantined[0].reason == "why"
    assert (passed.pipeline_state.ordinal, passed.pipeline_state.folded, passed.pipeline_state.steps) == (
        2,
        BatchKey(1, 2, None),
        1,
    )
    assert not passed.alerts
    assert replay_row(passed.row, context=unable.context, pipeline_state=unable.pipeline_state) == passed.pipeline_state


def test_a_revision_that_fails_keeps_the_place_and_the_history_of_its_row() -> None:
    first = close_batch(closing(report(0)))
    again = replace(closing(report(0), report(0, chunk=1), pipeline_state=first.pipeline_state), former=first.row)
    revised = withhold_batch(again, "why")
    assert (revised.row.ordinal, revised.row.revised, revised.row.n_sequences) == (1, True, 16)
    assert revised.pipeline_state == first.pipeline_state


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
