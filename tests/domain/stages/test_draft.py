"""What a row tells of how its batch came."""

from __future__ import annotations

from tests.domain.stages.closings import closing
from tests.domain.trainer import finished, report
from trmon.domain.pipeline.close_batch import close_batch
from trmon_client.core import wire


def circumstances(*reports: wire.Report) -> dict[str, float]:
    """Return the signals of a batch of these reports that are not of its columns."""
    row = close_batch(closing(*reports)).row
    assert row is not None
    names = ("missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes")
    return {name: row.signals[name] for name in names if row.signals[name]}


def test_a_batch_that_came_whole_has_nothing_to_tell() -> None:
    assert circumstances(report(0, finished=finished((0, None, 1)))) == {}


def test_ranks_that_did_not_come_are_counted() -> None:
    assert circumstances(report(0, rank=1, world_size=4)) == {"missing_ranks": 3.0, "incomplete": 1.0}


def test_a_chunk_that_is_known_and_missing_makes_it_incomplete() -> None:
    assert circumstances(report(0, chunk=1)) == {"incomplete": 1.0}


def test_what_waits_on_disks_is_the_newest_word_of_each_rank() -> None:
    spools = [wire.Losses(spooled_bytes=n) for n in (100, 300, 50)]
    batch = [
        report(0, rank=rank, chunk=chunk, world_size=2, losses=losses)
        for (rank, chunk), losses in zip(((0, 0), (0, 1), (1, 0)), spools, strict=True)
    ]
    assert circumstances(*batch) == {"client_spooled_bytes": 350.0}


def test_sequences_that_the_trainer_decided_otherwise_are_counted() -> None:
    otherwise = wire.pack_bits(~wire.unpack_bits(report(0).accepted or b"", 8))
    assert circumstances(report(0, accepted=otherwise)) == {"decision_mismatches": 8.0}
