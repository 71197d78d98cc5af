"""The findings of a run, computed anew at each row from the lists of values: slow, literal, for comparison in tests.

Where the specification leaves a choice, `ambiguities.md` says how it is read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tests.domain.findings.clause import DEAD_HOLD, Clause
from tests.domain.findings.clauses_of_engines import NAMES, agreement, corrupt, not_a_number, not_finite
from tests.domain.findings.clauses_of_training import training
from tests.domain.findings.measures import Run, mean, median

CLEAR_ROWS = 10
ORDER = (
    *("not_a_number", "corrupt_logprobs", "wrong_policy", "moe_routing", "support_shift", "temperature"),
    *("stale_rollouts", "engine_mismatch", "step_too_large", "reference_kl", "cut_at_limit", "no_learning_signal"),
    *("length_hacking", "length_surge", "entropy_explosion", "entropy_collapse", "length_collapse", "clip_saturation"),
    *("variance_blowup", "moderate_drift", "overoptimisation", "reward_collapse", "reward_decline"),
)
"""The order of section 2, that of causes."""
CLAUSES = (*not_a_number(), *corrupt(), *agreement(), *training())
CERTAIN = ("not_a_number", "corrupt_logprobs")
_AGREEMENT = ("moe_routing", "support_shift", "temperature", "stale_rollouts", "engine_mismatch")
_DRIFT = ("variance_blowup", "moderate_drift")
_LENGTH = ("length_hacking", "length_surge", "length_collapse")
_ENTROPY = ("entropy_explosion", "entropy_collapse")
_REWARD = ("reward_collapse", "reward_decline")
EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "corrupt_logprobs": ("wrong_policy", *_AGREEMENT, *_DRIFT, "step_too_large"),
    "wrong_policy": (*_AGREEMENT, *_DRIFT, "step_too_large"),
    "moe_routing": ("engine_mismatch", *_DRIFT, "step_too_large"),
    "support_shift": ("engine_mismatch", *_DRIFT, "step_too_large"),
    "temperature": ("engine_mismatch", *_DRIFT, "step_too_large"),
    "stale_rollouts": ("temperature", "engine_mismatch", *_DRIFT, "step_too_large"),
    "engine_mismatch": (*_DRIFT, "step_too_large"),
    "cut_at_limit": ("no_learning_signal", *_LENGTH),
    "step_too_large": (*_ENTROPY, *_LENGTH, *_REWARD, "clip_saturation"),
    "reward_collapse": ("no_learning_signal",),
    "reward_decline": ("no_learning_signal",),
    "reference_kl": (*_ENTROPY, *_LENGTH, *_REWARD, "clip_saturation"),
}
"""What a finding explains besides the reward findings, which everything explains."""


class Spell(NamedTuple):
    """A time in which a clause stands: it trips at a row, begins at its onset, and ends at a row or stands on."""

    clause: Clause
    trip: int
    onset: int
    end: int | None

    def holds(self, row: int) -> bool:
        """Whether it stands after a row."""
        return self.trip <= row and (self.end is None or row < self.end)


@dataclass(frozen=True)
class Evaluated:
    """The findings of a run: those that stand after each row, all spells of their clauses, and the leader."""

    standing: list[frozenset[str]]
    spells: list[Spell]
    leader: list[str | None]


def evaluate(
    rows: Sequence[Mapping[str, float]],
    *,
    attempts: Sequence[int] | None = None,
    fresh: Sequence[int] = (),
    config: Mapping[str, object] = MappingProxyType({}),
) -> Evaluated:
    """Return the findings of a run.

    Args: rows: the values of each step in order. attempts: the attempt of each row, one by default.
    fresh: the rows at which another configuration begins.
    config: router_replay: whether replay is declared; ended: whether the last row is the run's last.
    """
    run = Run([_with_shares(row) for row in rows], attempts or [0] * len(rows), config, fresh)
    spells = [spell for clause in CLAUSES for spell in _spells(run, clause)]
    named = [[(_finding(run, spell, i), spell) for spell in spells if spell.holds(i)] for i in range(len(rows))]
    for now in named:
        # moe_routing beside `engine_mismatch`
        if all(finding != "engine_mismatch" for finding, _ in now):
            now[:] = [(finding, spell) for finding, spell in now if finding != "moe_routing"]
    standing = [frozenset(finding for finding, _ in now) for now in named]
    if config.get("ended"):
        # or in the last row of a run
        last = run.moments[-1]
        standing[-1] |= {"not_a_number" for name in NAMES.values() if not_finite(name)(last)}
    trips: dict[str, tuple[int, int]] = {}
    over: dict[str, tuple[int, tuple[int, int]]] = {}
    leaders = []
    for i, now in enumerate(named):
        over |= {finding: (i, trip) for finding, trip in trips.items() if finding not in standing[i]}
        trips = {finding: trips[finding] for finding, _ in now if finding in trips}
        for finding, spell in now:
            end, former = over.get(finding, (-1, (0, 0)))
            # comes again before its signal was back in its band: the same illness, since its first trip
            trips.setdefault(finding, former if spell.onset <= end else (i, spell.onset))
        leaders.append(_leader(i, trips))
    return Evaluated(standing, sorted(spells, key=lambda spell: spell.trip), leaders)


def _with_shares(row: Mapping[str, float]) -> Mapping[str, float]:
    """share of groups of equal reward: of all-solved and none-solved ones, or all where the extremes are equal."""
    if "zero_variance_groups" in row:
        return row
    if "none_solved_groups" in row:
        return {**row, "zero_variance_groups": row["none_solved_groups"] + row.get("all_solved_groups", 0.0)}
    if {"reward_min", "reward_max"} <= row.keys():
        return {**row, "zero_variance_groups": 1.0 if row["reward_min"] == row["reward_max"] else 0.0}
    return row


def _finding(run: Run, spell: Spell, row: int) -> str:
    """Not at its top: then `solved` (info)."""
    finding = spell.clause.finding
    return "solved" if finding == "no_learning_signal" and run.moments[row].at_top() is True else finding


def _spells(run: Run, clause: Clause) -> Iterator[Spell]:
    """Yield the spells of a clause: it trips when its hold is met, and ends after 10 known rows running."""
    known: list[tuple[int, bool]] = []  # the rows in which the condition is known, for the onset
    band: list[tuple[int, bool]] = []  # the same whatever the guard says
    hold: list[bool] = []  # "true in k of the newest n known rows", since the attempt began or the last spell ended
    first_rows, guarded_at, trip, onset, calm = 0, -1, -1, 0, 0
    before: Spell | None = None
    is_named = clause.finding == "not_a_number" and clause.of in NAMES.values()
    is_known = [clause.of in row for row in run.rows] if is_named else run.is_logged(clause.of)
    for i, strict in enumerate(run.moments):
        if run.attempt_starts[i] == i:
            hold = []  # holds start anew
            first_rows = 0 if trip < 0 else first_rows
            known, band = ([], []) if i in run.fresh else (known, band)
        if not is_known[i]:
            continue
        guarded = clause.guard is not None and bool(clause.guard(strict))
        is_beyond = clause.condition(strict)
        band += [] if is_beyond is None else [(i, is_beyond)]
        true = False if guarded else is_beyond
        if guarded:
            guarded_at = i
        if true is None:
            continue
        known.append((i, true))
        first_rows += 1
        hold.append(true)
        if trip >= 0:
            # Clear: false (an upper limit x 0.8, a lower limit / 0.8) in 10 known rows running
            calm = 0 if not guarded and (true or clause.condition(replace(strict, relaxed=True))) else calm + 1
            if calm >= CLEAR_ROWS:
                before = Spell(clause, trip, onset, i)
                yield before
                trip, hold = -1, []
        elif _held(clause, hold, first_rows) and (clause.only_if is None or clause.only_if(strict)):
            trip, calm = i, 0
            # and the onset is never before the last row at which it held
            began = _onset(run, clause, known)
            onset = max(began, guarded_at + 1)
            # comes again before its signal was back in its band: the same illness
            if clause.change and before is not None and before.end is not None and began <= before.end:
                onset = before.onset
    if trip >= 0:
        yield Spell(clause, trip, onset, None)


def _held(clause: Clause, hold: list[bool], first_rows: int) -> bool:
    """*Hold* "k of n": true in k of the newest n known rows."""
    if clause.hold == DEAD_HOLD:
        # in 18 of the first 20 rows, later 45 of 50
        return sum(hold) >= 18 if first_rows <= 20 else sum(hold[-50:]) >= 45
    k, n = clause.hold
    return sum(hold[-n:]) >= k


def _onset(run: Run, clause: Clause, known: list[tuple[int, bool]]) -> int:
    trip = known[-1][0]
    if clause.is_split:
        return _split(run, clause.of, trip)
    if clause.change:
        return _departure(run, clause.of, clause.change, trip)
    if clause.outside is not None:
        rows = [run.moments[i] for i in run.moments[trip].rows(clause.of)]
        known = [(m.i, outside) for m in rows if (outside := clause.outside(m)) is not None] or known
    return _entry(known)


def _entry(known: list[tuple[int, bool]]) -> int:
    """Level: the row after the last two neighbouring rows inside it; standing from the first rows: the first row."""
    for at in range(len(known) - 1, 0, -1):
        if not known[at][1] and not known[at - 1][1]:
            return known[min(at + 1, len(known) - 1)][0]
    return known[0][0]


def _departure(run: Run, quantity: str, side: int, trip: int) -> int:
    """Change: running median of 3, back to the last row within 3 robust standard deviations of the first 20 rows."""
    m = run.moments[trip]
    values, rows = m.all(quantity), m.rows(quantity)
    first = values[:20]
    middle = median(first)
    robust = 1.4826 * median(np.abs(first - middle))
    for at in range(len(values) - 1, -1, -1):
        if side * (median(values[max(at - 1, 0) : at + 2]) - middle) <= 3 * robust:
            return rows[min(at + 1, len(values) - 1)]
    return rows[0]


def _split(run: Run, of: str, trip: int) -> int:
    """Reward: the least-squares split into a higher and a lower mean, from 50 rows before the peak to the trip."""
    m = run.moments[trip]
    values, rows, peak = m.all(of), m.rows(of), m.peak(of)
    place = 0 if peak is None else peak[1]
    start = max(0, place - 50)
    best, least = place, np.inf
    for at in range(max(place - 15, start + 1), len(values)):  # (at most 15 before)
        high, low = values[start:at], values[at:]
        above, below = mean(high), mean(low)
        error = float(np.sum((high - above) ** 2) + np.sum((low - below) ** 2)) if above > below else np.inf
        if error < least:
            best, least = at, error
    return rows[best]


def _leader(i: int, trips: Mapping[str, tuple[int, int]]) -> str | None:
    """Return the leading finding after a row; what is only info leads nothing. Args: trips: its trip and its onset."""
    trip = {finding: at for finding, (at, _) in trips.items() if finding in ORDER}
    onset = {finding: at for finding, (_, at) in trips.items() if finding in ORDER}
    if not onset:
        return None
    candidates = set(onset)
    # where reward_collapse stands only findings whose onset is at most 50 rows before its own lead
    if "reward_collapse" in onset:
        candidates = {f for f in candidates if onset[f] >= onset["reward_collapse"] - 50 or f in CERTAIN}
    may_lead = set(candidates)
    # a consequence never leads what began before it
    begun = {f for f in candidates if any(f in _explained(c) and onset[c] < onset[f] for c in candidates)}
    candidates -= begun
    # the earliest onset; within 10 rows of each other by the order of section 2
    earliest = min(onset[f] for f in candidates)
    near = [f for f in ORDER if f in candidates and onset[f] <= earliest + 10]
    # from row 0 `cut_at_limit` and `no_learning_signal` before `step_too_large`
    from_start = [f for f in ("cut_at_limit", "no_learning_signal") if f in near and onset[f] == 0]
    leader = from_start[0] if near[0] == "step_too_large" and from_start else near[0]
    # *Explains* (takes the lead from what it explains after standing 20 rows, if its onset is at most 10 rows later)
    causes = [
        f
        for f in ORDER
        if f in may_lead
        and leader in _explained(f)
        and not (f in _explained(leader) and onset[leader] < onset[f])
        and i - trip[f] >= 19
        and onset[f] <= onset[leader] + 10
    ]
    return causes[0] if causes else leader


def _explained(finding: str) -> tuple[str, ...]:
    return (*EXPLAINS.get(finding, ()), *(() if finding in _REWARD else _REWARD))
