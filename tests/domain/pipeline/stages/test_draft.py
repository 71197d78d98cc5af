"""The signals of a row that describe how its batch arrived."""

from __future__ import annotations

from tests.domain.pipeline.stages.closings import closing
from tests.domain.trainer import finished, report
from trmon.domain.pipeline.close_batch import close_batch
from trmon_client.core import wire


def assembly_signals_of(*reports: wire.Report) -> dict[str, float]:
    """Return the signals of a batch of these reports that do not come from its columns."""
    row = close_batch(closing(*reports)).row
    assert row is not None
    names = ("missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes")
    return {name: row.signals[name] for name in names if row.signals[name]}


def test_a_complete_batch_has_zeros() -> None:
    assert assembly_signals_of(report(0, finished=finished((0, None, 1)))) == {}


def test_missing_ranks_are_counted() -> None:
    assert assembly_signals_of(report(0, rank=1, world_size=4)) == {"missing_ranks": 3.0, "incomplete": 1.0}


def test_a_missing_chunk_makes_the_batch_incomplete() -> None:
    assert assembly_signals_of(report(0, chunk=1)) == {"incomplete": 1.0}


def test_spooled_bytes_are_the_largest_report_of_each_rank_summed() -> None:
    spools = [wire.Losses(spooled_bytes=n) for n in (100, 300, 50)]
    batch = [
        report(0, rank=rank, chunk=chunk, world_size=2, losses=losses)
        for (rank, chunk), losses in zip(((0, 0), (0, 1), (1, 0)), spools, strict=True)
    ]
    assert assembly_signals_of(*batch) == {"client_spooled_bytes": 350.0}


def test_sequences_with_another_decision_of_the_trainer_are_counted() -> None:
    otherwise = wire.pack_bits(~wire.unpack_bits(report(0).accepted or b"", 8))
    assert assembly_signals_of(report(0, accepted=otherwise)) == {"decision_mismatches": 8.0}
