"""The judge: folds the rows of a run one by one, and keeps which findings stand, since when and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

import msgspec
from msgspec import structs

from trmon.domain.findings.catalogue import LOST, NONFINITE, Catalogue, Clause, Comparison, Hold, is_paged, may_begin
from trmon.domain.findings.measures import SETTLED, VIEWS, Reading, remembered_as, sources_of
from trmon.domain.findings.memory import (
    EARLY_ROWS,
    START_ROWS,
    WINDOW_ROWS,
    NonFiniteMemory,
    RewardMemory,
    SignalMemory,
)
from trmon.domain.findings.onset import onset_of
from trmon.domain.severity import Severity
from trmon.domain.signals.windows import LARGEST, is_number

CLEAR_ROWS = 10
"""A finding closes after so many judged rows running in which it is not true. Source: findings, section 1."""
RECENT_FALL_ROWS = 20
MAX_SPELLS = 64


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a row: its attempt and its step."""

    attempt: int
    step: int


class ClauseMemory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The truths of a clause in its newest 50 judged rows, the newest in the lowest bit.

    `judged` counts rows for holds of the first rows, else only those that change something. `quiet` judged rows have
    passed since it was last true by the relaxed limit, while it stands; `guarded` is the last row that a guard held in.
    """

    truths: int = 0
    judged: int = 0
    stands: bool = False
    quiet: int = 0
    guarded: int = -1


SMOOTHED = ("mean", "mean_of_others", "average")
"""Transforms of a signal that keep its units."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison that holds: its measure of a signal with the limit, and the signal before the onset and now."""

    measure: str
    signal: str
    value: float
    side: str
    limit: float
    then: float | None = None
    now: float | None = None

    @property
    def is_on_scale(self) -> bool:
        """Whether the comparison is of the signal itself, rather than of its growth or distance."""
        _, _, transform = self.measure.partition(".")
        return transform in SMOOTHED if transform else self.value == self.now


class Spell(msgspec.Struct, frozen=True, kw_only=True):
    """A finding from its trip to its end, in rows; `place` has the step of each.

    `onset` is the first row of the illness, `beyond` the first row beyond the limit; `end` is None while it stands.
    `good` is the last good row, None if it stood from the first row (`from_start`), or from one of the next five.
    `remedy` is the key of a remedy that suits better than that of its clause; `knows_lag` if the run logs a lag.
    """

    finding: str
    clause: str
    trip: int
    trip_place: Place
    onset: int
    onset_place: Place
    good: int | None
    last_good: Place | None
    from_start: bool
    severity: Severity
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    knows_lag: bool = False
    beyond: Place | None = None
    end: int | None = None
    end_place: Place | None = None

    @property
    def stands(self) -> bool:
        """Whether it has not ended."""
        return self.end is None


class JudgeState(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's state after `rows` rows; the same rows give an equal state. `places` are those of the newest 200."""

    rows: int = 0
    places: tuple[Place, ...] = ()
    signals: dict[str, SignalMemory] = {}
    nonfinite: dict[str, NonFiniteMemory] = {}
    reward: RewardMemory = RewardMemory()
    evaluation: RewardMemory = RewardMemory()
    reward_at_eval_peak: float = math.nan
    falls: tuple[float, ...] = ()
    clauses: dict[str, ClauseMemory] = {}
    standing: dict[str, Spell] = {}
    ended: tuple[Spell, ...] = ()
    facts: dict[str, float] = {}
    attempt: int = 0
    config: str = ""

    def place(self, row: int) -> Place:
        """Return the place of a row, that of the oldest one known where it is older."""
        return self.places[max(0, len(self.places) - (self.rows - row))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row to judge: its place and its values by full name; NaN was logged and is no number.

    `facts` are what the run's configuration declares; `config` names the configuration: another one starts anew.
    """

    place: Place
    values: Mapping[str, float]
    facts: Mapping[str, float]
    config: str = ""


class Judge:
    """Folds rows by a catalogue; it has no state of its own."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._clauses = catalogue.clauses
        self._places = {clause.key: place for place, clause in enumerate(self._clauses)}
        self._remembered: dict[str, list[tuple[str, Callable[[float], float] | None, int]]] = {}
        for name in sorted(catalogue.signals):
            early = EARLY_ROWS if name in catalogue.read_early else START_ROWS
            for key, source in zip(remembered_as(name), sources_of(name), strict=True):
                entry = key, VIEWS[name][1] if name in VIEWS else None, early
                if entry not in self._remembered.setdefault(source, []):
                    self._remembered[source].append(entry)
        self._watched = catalogue.watched
        self._predictions = [clause for clause in self._clauses if catalogue.by_id[clause.finding].predicts]
        self._judged_by: dict[str, list[tuple[Clause, tuple[str, ...]]]] = {}
        self._judged_by_logged: dict[str, list[Clause]] = {}
        for clause in self._clauses:
            name = clause.decisive.signals[0]
            if clause.decisive.transform in (LOST, NONFINITE):
                self._judged_by_logged.setdefault(name, []).append(clause)
                continue
            sources = remembered_as(name)
            for place, source in enumerate(sources):
                self._judged_by.setdefault(source, []).append((clause, sources[:place]))

    def fold(self, state: JudgeState, row: Row) -> JudgeState:
        """Return the state after a row."""
        state = _begun(state, row)
        n = state.rows
        values = _with_shares(row.values)
        signals = dict(state.signals)
        known: set[str] = set()
        nonfinite = dict(state.nonfinite)
        for name, value in values.items():
            if name in self._watched:
                nonfinite[name] = nonfinite.get(name, _FINITE).with_value(value, n)
            if not is_number(value):
                continue
            for key, made, early in self._remembered.get(name, ()):
                seen = value if made is None else made(value)
                signals[key] = signals.get(key, _NEW).with_value(seen, n, early_rows=early)
                known.add(key)
        self._settle(signals, known, values, n)
        rewarded = values.get("reward_mean", math.nan)
        reward = state.reward.with_row(rewarded, values, n) if is_number(rewarded) else state.reward
        evaluation, at_peak = _with_evaluation(state, values, reward, n)
        folded = structs.replace(
            state,
            rows=n + 1,
            places=(*state.places[1 - WINDOW_ROWS :], row.place),
            signals=signals,
            nonfinite=nonfinite,
            reward=reward,
            evaluation=evaluation,
            reward_at_eval_peak=at_peak,
            facts=dict(row.facts),
        )
        reading = _reading(folded, known)
        if reward is not state.reward:
            fall = reading.computed("fall")
            falls = (*state.falls, fall)[-RECENT_FALL_ROWS:] if fall == fall else state.falls
            folded = structs.replace(folded, falls=falls)
        return self._with_findings(folded, reading)

    def finish(self, state: JudgeState) -> JudgeState:
        """Return the state at the end of the run: a name that is no number in its last row needs no second row."""
        if not state.rows:
            return state
        last = state.rows - 1
        known = {name for name, memory in state.nonfinite.items() if memory.newest[-1:] == (last,)}
        reading = _reading(state, known)
        holding = {
            clause.finding: clause
            for clause in reversed(self._clauses)
            if clause.decisive.transform in (LOST, NONFINITE) and clause.is_met(reading)
        }
        new = {finding: clause for finding, clause in holding.items() if finding not in state.standing}
        if not new:
            return state
        opened = {
            finding: self._opened(state, reading, finding, clause, clause.severity) for finding, clause in new.items()
        }
        return structs.replace(state, standing={**state.standing, **opened})

    def _settle(self, signals: dict[str, SignalMemory], known: set[str], values: Mapping[str, float], n: int) -> None:
        """Remember staleness_kl_k3 once more, without the rows in which the learning rate rises."""
        value, lr = values.get("staleness_kl_k3"), signals.get("lr", _NEW).newest(2)
        if value is not None and is_number(value) and not (len(lr) > 1 and lr[1] > lr[0]):
            signals[SETTLED] = signals.get(SETTLED, _NEW).with_value(value, n, early_rows=EARLY_ROWS)
            known.add(SETTLED)

    def _with_findings(self, state: JudgeState, reading: Reading) -> JudgeState:
        """Return the state with the clauses of the row's signals judged; other clauses stay as they were."""
        clauses = state.clauses
        for clause in self._predictions:
            if clause.key in clauses and clause.decisive.signals[0] not in reading.known:  # The predictor is silent.
                clauses = {key: memory for key, memory in clauses.items() if key != clause.key}
        for clause in self._judged(reading):
            former = clauses.get(clause.key)
            memory = _judged(former, clause, reading)
            if memory is not None and memory is not former:
                if clauses is state.clauses:
                    clauses = dict(clauses)
                clauses[clause.key] = memory
        holding: dict[str, Clause] = {}
        for key in sorted((key for key, memory in clauses.items() if memory.stands), key=self._places.__getitem__):
            clause = self.catalogue.by_key[key]
            at_top = self.catalogue.by_id[clause.finding].at_top
            holding.setdefault(at_top if at_top and reading.computed("at_top") > 0 else clause.finding, clause)
        beside = {finding: self.catalogue.by_id[clause.finding].beside for finding, clause in holding.items()}
        holding = {finding: clause for finding, clause in holding.items() if beside[finding] in ("", *holding)}
        state = structs.replace(state, clauses=clauses)
        if not holding and not state.standing:
            return state
        standing, ended = self._spells(state, reading, holding)
        return structs.replace(state, standing=standing, ended=ended)

    def _judged(self, reading: Reading) -> Iterator[Clause]:
        """Yield the clauses whose deciding signal the row logs: of several sources the first that the run has."""
        for name in reading.known:
            for clause, preferred in self._judged_by.get(name, ()):
                if not preferred or not any(source in reading.signals for source in preferred):
                    yield clause
        for name, memory in reading.nonfinite.items():
            if memory.newest[-1] == reading.row:
                yield from self._judged_by_logged.get(name, ())

    def _spells(
        self, state: JudgeState, reading: Reading, holding: Mapping[str, Clause]
    ) -> tuple[dict[str, Spell], tuple[Spell, ...]]:
        standing, ended = {}, state.ended
        for finding, spell in state.standing.items():
            if finding not in holding:
                place = state.places[-1]
                ended = (*ended, structs.replace(spell, end=reading.row, end_place=place))[-MAX_SPELLS:]
        for finding, clause in holding.items():
            known = state.standing.get(finding)
            usual = clause.severity if finding == clause.finding else self.catalogue.by_id[finding].severity
            severity = Severity.PAGE if is_paged(clause, reading) else usual
            if known is None:
                opened = standing[finding] = self._opened(state, reading, finding, clause, severity)
                ended = tuple(spell for spell in ended if (spell.finding, spell.trip) != (finding, opened.trip))
                continue
            worse = severity if severity is Severity.PAGE else known.severity
            then = known.evidence[0].then if known.evidence and clause.id == known.clause else None
            evidence = _evidence(clause, reading, then=math.nan if then is None else then) or known.evidence
            standing[finding] = structs.replace(known, severity=worse, clause=clause.id, evidence=evidence)
        return standing, ended

    def _opened(self, state: JudgeState, reading: Reading, finding: str, clause: Clause, severity: Severity) -> Spell:
        onset = onset_of(clause, reading, guarded=state.clauses.get(clause.key, _UNJUDGED).guarded)
        former = next((spell for spell in reversed(state.ended) if spell.finding == finding), None)
        if former is not None and former.end is not None and onset.walked <= former.end:
            return structs.replace(
                former,
                end=None,
                end_place=None,
                clause=clause.id,
                severity=severity,
                evidence=_evidence(clause, reading, then=onset.then),
            )
        is_known = onset.row > 5 and not self.catalogue.by_id[finding].predicts
        good = onset.good if is_known and onset.good >= state.rows - len(state.places) else None
        return Spell(
            finding=finding,
            clause=clause.id,
            trip=reading.row,
            trip_place=state.places[-1],
            onset=onset.row,
            onset_place=state.place(onset.row),
            good=good,
            last_good=None if good is None else state.place(good),
            from_start=onset.row == 0,
            beyond=None if onset.beyond is None else state.place(onset.beyond),
            severity=severity,
            evidence=_evidence(clause, reading, then=onset.then),
            remedy=_remedy(finding, clause, reading, onset.row),
            knows_lag=reading.memory("lag").count > 0,
        )


def is_at_top(state: JudgeState) -> bool:
    """Whether the reward is at its top in the newest row."""
    return _reading(state, frozenset()).computed("at_top") > 0


def _reading(state: JudgeState, known: Set[str]) -> Reading:
    """Return what measures read in the newest row. Args: known: the names that it logs."""
    return Reading(
        row=state.rows - 1,
        signals=state.signals,
        nonfinite=state.nonfinite,
        reward=state.reward,
        evaluation=state.evaluation,
        reward_at_eval_peak=state.reward_at_eval_peak,
        recent_fall=max(state.falls, default=math.nan),
        facts=state.facts,
        known=known,
        cache={},
    )


def _evidence(clause: Clause, reading: Reading, *, then: float) -> tuple[Evidence, ...]:
    """Return the comparisons of a clause that hold in a row; none where its deciding one does not."""
    if not clause.decisive.truth(reading, relaxed=True):
        return ()
    chosen = next((part for part in (*clause.any, *clause.only_if) if all(c.truth(reading) for c in part)), ())
    return tuple(
        Evidence(
            measure=part.measure,
            signal=reading.source(part.signals[0]),
            value=min(part.read(reading), LARGEST),
            side=part.side,
            limit=part.limit,
            **_then_and_now(part, reading, then if part is clause.decisive else math.nan),
        )
        for part in (*clause.when, *chosen)
        if part.side and part.truth(reading, relaxed=True)
    )


LR_ROSE, LR_ROWS = 3.0, 20
SUDDEN_ROWS = 3
GROWTH_ROWS, GROWS = 2, 1.3


def _remedy(finding: str, clause: Clause, reading: Reading, onset: int) -> str:
    """Return the key of a remedy that the rows suggest in place of the finding's; empty for none.

    A clause that names its own remedy is never overruled.
    """
    if clause.remedy != finding:
        return ""
    if finding == "step_too_large":
        lr = reading.memory("lr")
        near = [value for row, value in zip(lr.rows, lr.values, strict=True) if onset - LR_ROWS <= row <= onset]
        return "lr_rose" if near and min(near) > 0 and near[-1] > LR_ROSE * min(near) else ""
    if finding == "temperature":
        # Log-probs that fall short of the trainer's in size are of a higher temperature.
        is_hotter = reading.memory("logp_slope_q").mean_of(SUDDEN_ROWS) > 0
        declared = reading.facts.get("temperature", 1.0)
        if declared != 1.0:
            return "sampler_temperature" if is_hotter == (declared < 1.0) else "trainer_temperature"
        return "sampler_hotter" if is_hotter else "sampler_colder"
    if finding == "engine_mismatch":
        drift = reading.memory("kl_k3").newest(2 * GROWTH_ROWS)
        before, now = math.fsum(drift[:GROWTH_ROWS]), math.fsum(drift[GROWTH_ROWS:])
        return "weights_fall_behind" if len(drift) == 2 * GROWTH_ROWS and now > GROWS * before else ""
    if finding == "length_collapse":
        lengths = reading.memory("response_length")
        after = [value for row, value in zip(lengths.rows, lengths.values, strict=True) if row == onset + SUDDEN_ROWS]
        spikes = reading.memory("grad_norm")
        is_sudden = bool(after) and after[0] < 0.5 * lengths.start
        return "in_one_step" if is_sudden and not max(spikes.values, default=0.0) > 10.0 * spikes.mean_of(50) else ""
    if finding == "no_learning_signal":
        shares = {name: reading.memory(f"{name}_groups").mean_of(LR_ROWS) for name in ("all_solved", "none_solved")}
        most = max(shares, key=lambda name: shares[name] if shares[name] == shares[name] else 0.0)
        if shares[most] > 0.5:
            return most
        return "reward_broken" if clause.id == "reward" or reading.reward.is_at_floor(LR_ROWS) else ""
    return ""


def _then_and_now(part: Comparison, reading: Reading, then: float) -> dict[str, float | None]:
    """Return the signal before the onset and now; of a fall from a peak, the peak."""
    course, name = {"fall": reading.reward, "eval_fall": reading.evaluation}.get(part.measure), part.signals[0]
    now = reading.memory(VIEWS.get(name, (name,))[0]).now if course is None else course.e15
    found = {"then": then if course is None else course.peak, "now": now}
    return {place: value if math.isfinite(value) else None for place, value in found.items()}


_NEW, _FINITE, _UNJUDGED = SignalMemory(), NonFiniteMemory(), ClauseMemory()


def _with_shares(values: Mapping[str, float]) -> Mapping[str, float]:
    """Return the values with the share of groups of equal reward, from its two parts or, at least, equal extremes."""
    if "zero_variance_groups" in values:
        return values
    if "none_solved_groups" in values:
        return {**values, "zero_variance_groups": values["none_solved_groups"] + values.get("all_solved_groups", 0.0)}
    if "reward_min" in values and "reward_max" in values:
        return {**values, "zero_variance_groups": float(values["reward_min"] == values["reward_max"])}
    return values


def _begun(state: JudgeState, row: Row) -> JudgeState:
    """Return the state at the start of a row's attempt, if it is another one than before."""
    if not state.rows or (row.place.attempt == state.attempt and row.config == state.config):
        return structs.replace(state, attempt=row.place.attempt, config=row.config)
    last = state.places[-1].step
    keeps = row.config == state.config and row.place.step <= last + 1
    return structs.replace(
        state,
        attempt=row.place.attempt,
        config=row.config,
        signals={name: memory.restarted(keeps_start=keeps) for name, memory in state.signals.items()},
        reward=state.reward.restarted(keeps_start=keeps),
        evaluation=state.evaluation.restarted(keeps_start=keeps),
        falls=(),
        clauses={
            key: structs.replace(memory, truths=0, judged=memory.judged if memory.stands else 0)
            for key, memory in state.clauses.items()
        },
    )


def _with_evaluation(
    state: JudgeState, values: Mapping[str, float], reward: RewardMemory, n: int
) -> tuple[RewardMemory, float]:
    value = values.get("eval_reward")
    if value is None or not is_number(value):
        return state.evaluation, state.reward_at_eval_peak
    is_peak = not state.evaluation.high >= value
    return state.evaluation.with_row(value, {}, n), reward.signal.ema if is_peak else state.reward_at_eval_peak


def _judged(known: ClauseMemory | None, clause: Clause, reading: Reading) -> ClauseMemory | None:
    """Return the memory of a clause after a row that is judged; unknown truths are no rows."""
    memory = known or _UNJUDGED
    is_guarded = bool(clause.unless) and clause.is_guarded(reading)
    truth = False if is_guarded else clause.is_met(reading)
    if truth is None:
        return memory
    if not (truth or is_guarded or memory.truths or memory.stands or clause.hold.first):
        return known
    guarded = reading.row if is_guarded else memory.guarded
    truths = (memory.truths << 1 | truth) & _MASKS[50]
    judged = memory.judged + 1
    if not memory.stands:
        return ClauseMemory(
            truths, judged, _holds(clause.hold, truths, judged) and may_begin(clause, reading), 0, guarded
        )
    still = truth or (not is_guarded and clause.is_met(reading, relaxed=True))
    quiet = 0 if still else memory.quiet + 1
    # A clause that has closed holds anew by new rows: some holds are longer than what closes it.
    return (
        ClauseMemory(truths, judged, True, quiet, guarded)
        if quiet < CLEAR_ROWS
        else ClauseMemory(0, judged, guarded=guarded)
    )


_MASKS = tuple((1 << n) - 1 for n in range(51))


def _holds(hold: Hold, truths: int, judged: int) -> bool:
    if hold.first and judged <= hold.first_rows:
        return truths.bit_count() >= hold.first
    return (truths & _MASKS[hold.rows]).bit_count() >= hold.needed
