"""The verdict of a judge: which finding leads, what is outside its healthy range, and the word on the run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from statistics import median
from typing import Any

import msgspec

from trmon.domain.findings.catalogue import AGREEMENT, TRAINING, Catalogue
from trmon.domain.findings.judge import Evidence, JudgeState, Place, Spell, is_at_top
from trmon.domain.findings.measures import sources_of
from trmon.domain.findings.memory import START_ROWS, RewardMemory, SignalMemory, mean
from trmon.domain.severity import Severity
from trmon_client.core.signals.catalogue import signal_words
from trmon_client.core.wire.messages import decodable

ENOUGH_ROWS = 20
ROWS_FOR_A_TREND = 40
TREND_ERRORS = 4.0
CHANGED_TIMES = 1.5
NEAR_ROWS = 10
LEADS_AFTER_ROWS = 20
COLLAPSE_LEAD_ROWS = 50
COLLAPSE = "reward_collapse"
"""The finding after which nothing is left to predict."""
PREDICTION = "collapse_risk"
"""The finding that predicts: while it leads, nothing has broken yet."""
EMPTY_MASK = "empty_mask"
"""The remedy of a mask that leaves no token in the loss."""
REWARD_FINDINGS = (COLLAPSE, "reward_decline")
CERTAIN = ("not_a_number", "corrupt_logprobs")
"""They lead a collapse however long before it they began."""
STEP = "step_too_large"
HISTORY_UNAVAILABLE = "history unavailable (the lake cannot be read)"
"""The note on a run that is judged without its attempts in the lake."""
FROM_START = ("cut_at_limit", "no_learning_signal")
"""From row 0 they come before a step that is too large. Source: findings, section 4."""


class Word(Enum):
    """The word on a run, the first that holds. Source: findings, section 3."""

    FINDING = "finding"
    OUTSIDE = "outside the healthy range"
    LEARNT_NOTHING = "has learnt nothing yet"
    TOO_FEW_ROWS = "too few rows to judge"
    HEALTHY = "healthy"
    TRAINING_HEALTHY = "training healthy; agreement not measured"
    NOT_JUDGED = "no drift found; training not judged"
    NOTHING_KNOWN = "nothing here that trmon knows"

    @property
    def is_healthy(self) -> bool:
        """Whether it says that the run is well."""
        return self in (Word.HEALTHY, Word.TRAINING_HEALTHY)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as it is told: its words, its severity, its steps and its evidence, the decisive one first.

    `since` is its onset, `found` the row that found it, `beyond` the first row beyond the limit where it began as a
    ramp; `last_good` is None where it stood from the first rows or its onset is not known well. `ended` is None while
    it stands.
    """

    finding: str
    clause: str
    title: str
    meaning: str
    severity: Severity
    remedy: str
    chart: str
    since: Place
    found: Place
    from_start: bool
    last_good: Place | None
    evidence: tuple[Evidence, ...]
    beyond: Place | None = None
    ended: Place | None = None


class OutOfRange(msgspec.Struct, frozen=True, kw_only=True):
    """A signal whose newest values are outside their healthy range."""

    signal: str
    value: float
    range: str


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The course of a signal: the mean of its first and of its last rows, and for a reward `rose`, `flat` or `fell`."""

    signal: str
    first: float
    last: float
    trend: str | None = None


@decodable
class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge says of a run at its newest row; `findings` stand, the leading one first, `over` have ended.

    `since` is the onset of the illness, `last_good` the last good row before it. `notes` are sentences without a
    finding. `at_top`: whether the reward is at its top. `at` is when it was made; None of a log, or if it is not known.
    """

    word: Word
    place: Place
    rows: int
    findings: tuple[Found, ...] = ()
    over: tuple[Found, ...] = ()
    outside: tuple[OutOfRange, ...] = ()
    reward: Course | None = None
    changed: tuple[Course, ...] = ()
    since: Place | None = None
    last_good: Place | None = None
    measures_agreement: bool = False
    measures_training: bool = False
    at_top: bool = False
    notes: tuple[str, ...] = ()
    at: float | None = None

    @property
    def lead(self) -> Found | None:
        """The finding that leads; None without any that counts."""
        return self.findings[0] if self.findings and self.word is Word.FINDING else None

    @property
    def counts_no_token(self) -> bool:
        """Whether the mask leaves no token in the loss: what was given then measures nothing."""
        return any(one.remedy == EMPTY_MASK for one in self.findings)

    @property
    def interval(self) -> tuple[int, int] | None:
        """The steps in which the run broke, to that of the finding; None without one, or where it only predicts."""
        if self.lead is None or self.since is None or self.lead.finding == PREDICTION:
            return None
        # The last good step may be an earlier attempt's.
        good = self.since.step if self.last_good is None else self.last_good.step
        return min(good, self.since.step), self.lead.found.step

    @property
    def ends_ill(self) -> bool:
        """Whether a run that ends here has ended ill: with a page or a fallen reward, and not at its top."""
        worst = any(one.severity is Severity.PAGE or one.finding in REWARD_FINDINGS for one in self.findings)
        return worst and not self.at_top

    @property
    def is_ill(self) -> bool:
        """Whether a finding stands that warns or pages."""
        return self.lead is not None


def leader_of(state: JudgeState, catalogue: Catalogue) -> Spell | None:
    """Return the standing finding that leads: the earliest onset, of those within 10 rows the first cause."""
    standing = [spell for spell in state.standing.values() if spell.severity is not Severity.INFO]
    collapse = state.standing.get(COLLAPSE)
    if collapse is not None:
        least = collapse.onset - COLLAPSE_LEAD_ROWS
        standing = [spell for spell in standing if spell.onset >= least or spell.finding in CERTAIN]
    found = [spell for spell in standing if not catalogue.by_id[spell.finding].predicts]
    standing = found or standing
    if not standing:
        return None
    first = min(spell.onset for spell in standing)
    near = [spell for spell in standing if spell.onset <= first + NEAR_ROWS]
    has_step = any(spell.finding == STEP for spell in near)
    near.sort(key=lambda spell: _order(spell, catalogue, from_start=has_step and first == 0))
    leader = next((spell for spell in near if not any(_follows(spell, other, catalogue) for other in near)), near[0])
    for spell in standing:
        stood = state.rows - spell.trip >= LEADS_AFTER_ROWS and not _follows(spell, leader, catalogue)
        if stood and explains(catalogue, spell.finding, leader.finding) and spell.onset <= leader.onset + NEAR_ROWS:
            leader = spell
    return leader


def _order(spell: Spell, catalogue: Catalogue, *, from_start: bool) -> tuple[int, int]:
    place = catalogue.order[spell.finding]
    is_early = from_start and spell.onset == 0 and spell.finding in FROM_START
    return (catalogue.order[STEP] - 1, place) if is_early else (place, 0)


def _follows(spell: Spell, other: Spell, catalogue: Catalogue) -> bool:
    """Whether a finding is a consequence of one that began before it."""
    return other.onset < spell.onset and explains(catalogue, other.finding, spell.finding)


def explains(catalogue: Catalogue, cause: str, symptom: str) -> bool:
    """Whether a finding explains another one; every finding explains a fall of the reward."""
    if cause == symptom or cause not in catalogue.by_id:
        return False
    return symptom in catalogue.by_id[cause].explains or (symptom in REWARD_FINDINGS and cause not in REWARD_FINDINGS)


def onset_of_illness(state: JudgeState, leader: Spell) -> Spell:
    """Return the spell whose onset is that of the illness: the leader's, never later than the reward's fall."""
    falls = [state.standing[name] for name in REWARD_FINDINGS if name in state.standing]
    return min((leader, *falls), key=lambda spell: spell.onset)


def last_good_of(state: JudgeState, illness: Spell, catalogue: Catalogue) -> Spell:
    """Return the spell whose last good row is that of an illness: the earliest of what began within 10 rows of it."""
    near = (
        spell
        for spell in state.standing.values()
        if spell.severity is not Severity.INFO
        and not catalogue.by_id[spell.finding].predicts
        and abs(spell.onset - illness.onset) <= NEAR_ROWS
    )
    return min((illness, *near), key=lambda spell: -1 if spell.good is None else spell.good)


def with_attempts(judgement: Judgement, attempts: Mapping[int, int]) -> Judgement:
    """Return a judgement whose places have other ids of their attempts. Args: attempts: the new id of each."""

    def moved(place: Place | None) -> Any:
        return None if place is None else Place(attempts.get(place.attempt, place.attempt), place.step)

    def found(one: Found) -> Found:
        places = {name: moved(getattr(one, name)) for name in ("since", "found", "last_good", "beyond", "ended")}
        return msgspec.structs.replace(one, **places)

    return msgspec.structs.replace(
        judgement,
        place=moved(judgement.place),
        since=moved(judgement.since),
        last_good=moved(judgement.last_good),
        findings=tuple(map(found, judgement.findings)),
        over=tuple(map(found, judgement.over)),
    )


def before_first_row(place: Place) -> Judgement:
    """Return the judgement of a run that has a step and no judged one: the newest is judged when the next begins."""
    return Judgement(word=Word.TOO_FEW_ROWS, place=place, rows=0)


def judge_run(state: JudgeState, catalogue: Catalogue) -> Judgement | None:
    """Return the judgement at the newest row; None before the first one."""
    if not state.rows:
        return None
    leader = leader_of(state, catalogue)
    standing = sorted(
        state.standing.values(),
        key=lambda spell: (spell is not leader, spell.severity is Severity.INFO, catalogue.order[spell.finding]),
    )
    at_top = is_at_top(state)
    outside = tuple(_outside(state, catalogue, at_top=at_top))
    illness = None if leader is None else onset_of_illness(state, leader)
    knows_agreement = any(_memory(state, name).count for name in AGREEMENT)
    knows_training = any(_memory(state, name).count for name in TRAINING)
    none_solved = _memory(state, "none_solved_groups").mean_of(START_ROWS)
    return Judgement(
        word=_word(state, leader, outside, knows_agreement=knows_agreement, knows_training=knows_training),
        place=state.places[-1],
        rows=state.rows,
        findings=tuple(_found_in(state, spell, catalogue) for spell in standing),
        over=tuple(_found_in(state, spell, catalogue) for spell in state.ended if spell.severity is not Severity.INFO),
        outside=outside,
        reward=_reward_course(state.reward),
        changed=tuple(_changed(state)) if state.rows < ENOUGH_ROWS else (),
        since=None if illness is None else illness.onset_place,
        last_good=None if illness is None else last_good_of(state, illness, catalogue).last_good,
        measures_agreement=knows_agreement,
        measures_training=knows_training or not state.nonfinite.keys().isdisjoint(TRAINING),
        at_top=at_top,
        notes=(f"{none_solved:.0%} of the groups solve nothing",) if none_solved > 0.5 else (),
    )


def _found_in(state: JudgeState, spell: Spell, catalogue: Catalogue) -> Found:
    """Return a spell in words, with the chart of a signal that the run has: of its clause, or else of its evidence."""
    found = found_of(spell, catalogue)
    named = (*sources_of(found.chart), *(one.signal for one in spell.evidence))
    return msgspec.structs.replace(found, chart=next(filter(state.signals.__contains__, named), found.chart))


def found_of(spell: Spell, catalogue: Catalogue) -> Found:
    """Return a spell with the words of its finding and clause."""
    spec = catalogue.by_id[spell.finding]
    clause = catalogue.by_key.get(f"{spell.finding}.{spell.clause}")
    title = clause.title if clause else spec.title
    return Found(
        finding=spell.finding,
        clause=spell.clause,
        title=f"{title}, {spec.without_lag}" if spec.without_lag and not spell.knows_lag else title,
        meaning=clause.meaning if clause else spec.meaning,
        severity=spell.severity,
        remedy=spell.remedy or (clause.remedy if clause else spell.finding),
        chart=clause.chart if clause else spec.chart,
        since=spell.onset_place,
        found=spell.trip_place,
        from_start=spell.from_start,
        last_good=spell.last_good,
        evidence=spell.evidence,
        beyond=spell.beyond,
        ended=spell.end_place,
    )


def _word(
    state: JudgeState,
    leader: Spell | None,
    outside: tuple[OutOfRange, ...],
    *,
    knows_agreement: bool,
    knows_training: bool,
) -> Word:
    if leader is not None:
        return Word.FINDING
    if outside:
        return Word.OUTSIDE
    if "not_learning" in state.standing:
        return Word.LEARNT_NOTHING
    has_reward = state.reward.signal.count > 0
    if not (has_reward or knows_agreement or any(memory.count for memory in state.signals.values())):
        return Word.NOTHING_KNOWN
    if state.rows < ENOUGH_ROWS:
        return Word.TOO_FEW_ROWS
    if has_reward and knows_training:
        return Word.HEALTHY if knows_agreement else Word.TRAINING_HEALTHY
    return Word.NOT_JUDGED


def _memory(state: JudgeState, name: str) -> SignalMemory:
    for source in sources_of(name):
        if (found := state.signals.get(source)) is not None:
            return found
    return SignalMemory()


def _source(state: JudgeState, name: str) -> str:
    return next((source for source in sources_of(name) if source in state.signals), name)


def _outside(state: JudgeState, catalogue: Catalogue, *, at_top: bool) -> Iterator[OutOfRange]:
    lags = _memory(state, "lag").now > 0
    for name, usual in catalogue.ranges.items():
        memory = _memory(state, name)
        if not memory.count or (usual.only_if_unknown and _memory(state, usual.only_if_unknown).count):
            continue
        if usual.not_at_top and at_top:
            continue
        recent = memory.newest(START_ROWS)
        value = mean(recent) if usual.by == "mean" else median(recent)
        # Noisy engines, declared or seen at the start, have a wider range; so do rollouts that lag.
        noisy = usual.widened(usual.times_when_noisy)
        began = median(memory.early[:START_ROWS]) if memory.count >= START_ROWS else math.nan
        is_noisy = state.facts.get("noisy", 0.0) > 0 or (not usual.holds(began) and noisy.holds(began))
        found = noisy if is_noisy else usual
        allowed = found.widened(usual.times_when_lagging) if lags else found
        if not allowed.holds(value):
            yield OutOfRange(signal=_source(state, name), value=value, range=str(allowed))


def _thirds(values: tuple[float, ...]) -> tuple[float, float]:
    part = max(1, len(values) // 3)
    return mean(values[:part]), mean(values[-part:])


def _reward_course(reward: RewardMemory) -> Course | None:
    """Return the reward's course: first against last 20 rows; under 40 rows first and last third, without a word."""
    count = reward.signal.count
    if not count:
        return None
    if count < ROWS_FOR_A_TREND:
        first, last = _thirds(reward.signal.values)
        return Course(signal="reward_mean", first=first, last=last)
    first, last = mean(reward.signal.early[:START_ROWS]), reward.signal.mean_of(START_ROWS)
    error = TREND_ERRORS * reward.noise_about_trend * math.sqrt(2.0 / START_ROWS)
    trend = "rose" if last - first > error else ("fell" if first - last > error else "flat")
    return Course(signal="reward_mean", first=first, last=last, trend=trend)


WITHOUT_COURSE = ("loss", "lr", "reward_mean", "settled_kl_k3", "step_seconds")


def _changed(state: JudgeState) -> Iterator[Course]:
    """Yield the signals of too few rows that changed by more than half, the largest change first."""
    found = []
    for name, memory in state.signals.items():
        if memory.count < 2 or ":" in name or name in WITHOUT_COURSE or name.startswith("n_"):
            continue
        if name.startswith("total_") and name.replace("total", "mismatch", 1) in state.signals:
            continue  # It has the same words, and the engines decide.
        first, last = _thirds(memory.values)
        if first > 0 and last > 0 and not 1 / CHANGED_TIMES <= last / first <= CHANGED_TIMES:
            found.append((abs(math.log(last / first)), Course(signal=name, first=first, last=last)))
    yield from (course for _, course in sorted(found, key=lambda pair: -pair[0]))


def words_of(judgement: Judgement) -> str:
    """Return the verdict in one phrase, such as `engine mismatch` or `healthy, reward rose`."""
    match judgement.word:
        case Word.FINDING:
            assert judgement.lead is not None
            phrase = judgement.lead.title
        case Word.OUTSIDE:
            found = (
                f"{signal_words(out.signal)} {number(out.value)} (healthy {out.range})" for out in judgement.outside
            )
            phrase = f"{judgement.word.value}: {', '.join(found)}"
        case Word.TOO_FEW_ROWS:
            phrase = f"{judgement.word.value} ({judgement.rows} of {ENOUGH_ROWS})"
        case Word.NOT_JUDGED if not judgement.measures_agreement:
            phrase = "no finding; training and agreement not judged"
        case _:
            phrase = judgement.word.value
    return "; ".join((phrase, *_asides(judgement)))


def _asides(judgement: Judgement) -> Iterator[str]:
    yield from (note for note in judgement.notes if judgement.word is not Word.FINDING or note == HISTORY_UNAVAILABLE)
    reward, fallen = judgement.reward, any(found.finding in REWARD_FINDINGS for found in judgement.findings)
    if reward is not None and not fallen:
        first, last = number(reward.first), number(reward.last)
        values = first if first == last else f"{first} to {last}"
        yield f"reward {values}" if reward.trend is None else f"reward {reward.trend}"
    for course in judgement.changed[:MAX_CHANGED]:
        yield f"{signal_words(course.signal)} {number(course.first)} to {number(course.last)}"


MAX_CHANGED = 4


def number(value: float) -> str:
    """Return a number as people read it: 3 digits."""
    return f"{value:.3g}"
