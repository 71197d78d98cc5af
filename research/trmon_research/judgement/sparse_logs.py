"""One collapse logged every step, every 5 and every 10: the judge must find the same, after about as many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trmon_research.judgement.folded import folded
from trmon_research.language_like.judged import rows_of_lines
from trmon_research.language_like.plans import Plan, plans
from trmon_research.language_like.runs import Simulated

EVERY = (1, 5, 10)
ROWS, ONSET = 2000, 1200
FINDING = "reward_collapse"


@dataclass(frozen=True, slots=True)
class SparseLog:
    """A run logged every so many steps: rows from its onset to the first message and to that of the collapse.

    `early` messages came before the onset.
    """

    every: int
    rows_to_first: int | None
    told_as: str | None
    rows_to_fall: int | None
    early: int


def collapse() -> Plan:
    """Return a long run, as a trainer's log has it, whose gradient spikes and whose reward falls within 15 steps."""
    plan = next(plan for plan in plans() if plan.fault == "instability")
    traits = replace(plan.traits, rows=ROWS, view="log", shape="plateau", reward="verifier", groups=(16, 8))
    return replace(plan, traits=traits, onset=ONSET)


def sparse_logs(every: Sequence[int] = EVERY) -> Iterator[SparseLog]:
    """Yield the run at each interval of logging."""
    lines = list(Simulated.of(collapse()).rows())
    for steps in every:
        found, began = folded(rows_of_lines(lines[::steps])), ONSET // steps
        told = [told for told in found.told if told.row >= began]
        fell = next((told.row - began for told in told if told.spell.finding == FINDING), None)
        yield SparseLog(
            steps,
            rows_to_first=told[0].row - began if told else None,
            told_as=told[0].spell.finding if told else None,
            rows_to_fall=fell,
            early=len(found.told) - len(told),
        )
