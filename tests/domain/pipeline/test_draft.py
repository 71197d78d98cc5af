"""The signals of a row that describe how its batch arrived."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.pipeline.closings import closing, parse_rules, pass_context
from tests.domain.trainer import finished, report
from trmon.domain.batches.batch import MAX_REASON_LENGTH, QuarantinePart
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.close_batch import close_batch, replay_row, withhold_batch
from trmon.domain.pipeline.state import PipelineState
from trmon_client.core import wire

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
