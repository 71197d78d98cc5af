"""How slots are shared: evenly, and nobody gives up what nobody would get."""

from __future__ import annotations

import pytest

from trmon.domain.ownership import SLOTS, SlotHoldings, in_slots, slot_of

SHARES = [
    ("who is alone takes all", 0, 1, SLOTS, 0),
    ("two take half each", SLOTS, 2, 0, SLOTS // 2),
    ("three take a third, rounded up so that none is left over", 43, 3, 0, 0),
    ("more processes than slots leave some without any", 0, 2 * SLOTS, 1, 0),
    ("none that are counted is as one: itself", 0, 0, SLOTS, 0),
]


@pytest.mark.parametrize(("case", "held", "n_workers", "missing", "surplus"), SHARES)
def test_slots_are_shared(case: str, held: int, n_workers: int, missing: int, surplus: int) -> None:
    standing = SlotHoldings(fences=dict.fromkeys(range(held), 1), n_workers=n_workers)
    assert (standing.missing, len(standing.surplus)) == (missing, surplus)


N_TOGETHER = 20


@pytest.mark.parametrize("first_id", [1, 100, 1000])
@pytest.mark.parametrize(("n_workers", "most"), [(2, 12), (3, 8), (4, 6), (8, 5)])
def test_runs_that_start_together_are_shared_as_workers_join(n_workers: int, most: int, first_id: int) -> None:
    """Each worker that joins gets what the others release."""
    held = [set(range(SLOTS))]
    for joined in range(2, n_workers + 1):
        holdings = [SlotHoldings(fences=dict.fromkeys(slots, 1), n_workers=joined) for slots in held]
        held = [set(one.fences) - one.surplus for one in holdings]
        held.append(set().union(*(one.surplus for one in holdings)))
    run_ids = range(first_id, first_id + N_TOGETHER)
    assert max(len(in_slots(run_ids, slots)) for slots in held) <= most


def test_every_run_has_one_slot() -> None:
    assert [slot_of(run_id) for run_id in (None, 0, 1, SLOTS, SLOTS + 3)] == [0, 0, 1, 0, 3]
    assert in_slots([1, 2, SLOTS + 2], {2}) == {2, SLOTS + 2}
