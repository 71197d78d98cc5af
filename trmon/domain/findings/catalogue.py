"""The catalogue of findings: findings.yaml as checked values, with its comparisons ready to be read."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files

import msgspec

from trmon.domain.errors import InvalidInput
from trmon.domain.findings.measures import AVERAGES, COMPUTED, READ_BY, TRANSFORMS, Reading
from trmon.domain.severity import Severity
from trmon_client.core.logprob_mistakes import LogprobMistake

LOST, NONFINITE = "lost", "nonfinite"
"""What not_a_number asks of a name: is it not finite in the row, and (lost) was it a number before."""
USUAL_NUMBERS = 5
"""A name that was a number in so many rows before it first was none is lost; with fewer it is a sparse metric."""
RELAXED = 0.8
"""An upper limit is multiplied by it while a finding stands, a lower one divided. Source: findings, section 1."""
_COMPARISON = re.compile(r"([a-z][a-z0-9_.]*) (?:([<>]=?) (-?[0-9.]+(?:e-?[0-9]+)?)|unknown)")
_BEYOND: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "": lambda value, _: value != value,
}
_HOLD = re.compile(r"(?:(\d+) of the first (\d+) or )?(\d+) of (\d+)")


def is_beyond(side: str, value: float, limit: float) -> bool:
    """Whether a value is beyond a limit on a side; without one, whether it is not known."""
    return _BEYOND[side](value, limit)


def relaxed_limit(side: str, limit: float) -> float:
    """Return the limit that counts while a finding stands."""
    return limit * RELAXED if side.startswith(">") == (limit > 0) else limit / RELAXED


@dataclass(frozen=True)
class Comparison:
    """A measure beyond a limit; without a side it is true where the measure is not known."""

    measure: str
    side: str
    limit: float
    read: Callable[[Reading], float] = field(compare=False, repr=False)

    @property
    def is_upper(self) -> bool:
        """Whether values above the limit are beyond it."""
        return self.side.startswith(">")

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """The names that the measure reads; the first decides whether a row is judged."""
        return READ_BY.get(self.measure) or (self.measure.partition(".")[0],)

    @cached_property
    def transform(self) -> str:
        """The name of the transform; empty for the newest value."""
        return self.measure.partition(".")[2]

    @cached_property
    def relaxed(self) -> float:
        """The limit that counts while the finding stands."""
        return relaxed_limit(self.side, self.limit)

    def is_beyond(self, value: float, limit: float) -> bool:
        """Whether a value is beyond a limit on this side; False for NaN."""
        return is_beyond(self.side, value, limit)

    def truth(self, reading: Reading, *, relaxed: bool = False) -> bool | None:
        """Return whether the measure is beyond its limit in a row; None if it is not known."""
        value = reading.cache.get(self.measure)
        if value is None:
            value = reading.cache[self.measure] = self.read(reading)
        if value != value and self.side:
            return None
        return _BEYOND[self.side](value, self.relaxed if relaxed else self.limit)

    def __str__(self) -> str:
        return f"{self.measure} {self.side} {self.limit:g}" if self.side else f"{self.measure} unknown"


@dataclass(frozen=True, slots=True)
class Hold:
    """In how many of the newest judged rows a clause must be true; `first` of the first `first_rows` are enough."""

    needed: int
    rows: int
    first: int = 0
    first_rows: int = 0

    def __str__(self) -> str:
        later = f"{self.needed} of {self.rows}"
        return f"{self.first} of the first {self.first_rows} or {later}" if self.first else later


AGREEMENT = ("prob_pearson", "kl_k1", "kl_k3", "abs_log_ratio_mean", "ppl_ratio")
TRAINING = ("reward_std", "grad_norm", "entropy", "response_length", "reference_kl")
MEASURED = (*AGREEMENT, *TRAINING, "none_solved_groups", "all_solved_groups", "loss", "lr")
"""What must be known for a run to be healthy: one of the agreement, the reward, and one of training."""
AT_ONCE, USUAL_HOLD = Hold(1, 1), Hold(5, 10)


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One way in which a finding shows: comparisons that must all be true, and when they are not judged."""

    id: str
    finding: str
    is_change: bool
    when: tuple[Comparison, ...]
    any: tuple[tuple[Comparison, ...], ...] = ()
    where: tuple[Comparison, ...] = ()
    unless: tuple[Comparison, ...] = ()
    only_if: tuple[tuple[Comparison, ...], ...] = ()
    begins_unless: tuple[Comparison, ...] = ()
    hold: Hold
    title: str
    meaning: str
    severity: Severity
    page_when: tuple[tuple[Comparison, ...], ...] = ()
    remedy: str
    chart: str
    seen: tuple[int, int] | None = None

    @cached_property
    def key(self) -> str:
        """The name of the clause among those of all findings."""
        return f"{self.finding}.{self.id}"

    @cached_property
    def decisive(self) -> Comparison:
        """The comparison that decides whether a row is judged, and whose signal has the onset."""
        return self.when[0]

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All its comparisons."""
        alternatives = (comparison for part in (*self.any, *self.only_if, *self.page_when) for comparison in part)
        return (*self.when, *alternatives, *self.where, *self.unless, *self.begins_unless)

    @cached_property
    def _cheapest_first(self) -> tuple[Comparison, ...]:
        """The comparisons that must all be true, in any order: those of newest values, then those of many values."""
        return tuple(sorted(self.when, key=lambda part: part.measure in COMPUTED or bool(part.transform)))

    def is_met(self, reading: Reading, *, relaxed: bool = False) -> bool | None:
        """Return whether the clause is true in a row where no guard of it holds, in three-valued logic."""
        found: bool | None = True
        for comparison in self._cheapest_first:
            truth = comparison.truth(reading, relaxed=relaxed)
            if truth is False:
                return False
            if truth is None:
                found = None
        if any(part.truth(reading, relaxed=relaxed) is False for part in self.where):
            return False
        if self.any:
            chosen = _any(self.any, reading, relaxed=relaxed)
            return False if chosen is False else (None if chosen is None else found)
        return found

    def is_guarded(self, reading: Reading) -> bool:
        """Whether a guard holds in a row: then the clause is not judged, which counts as false."""
        return any(guard.truth(reading) for guard in self.unless)


def may_begin(clause: Clause, reading: Reading) -> bool:
    """Whether a clause whose hold is met has in this row what it must have to begin."""
    is_kept = any(guard.truth(reading) for guard in clause.begins_unless)
    return not is_kept and (not clause.only_if or bool(_any(clause.only_if, reading)))


def _all(parts: tuple[Comparison, ...], reading: Reading, *, relaxed: bool) -> bool | None:
    truths = [part.truth(reading, relaxed=relaxed) for part in parts]
    return False if False in truths else (None if None in truths else True)


def _any(parts: tuple[tuple[Comparison, ...], ...], reading: Reading, *, relaxed: bool = False) -> bool | None:
    truths = [_all(part, reading, relaxed=relaxed) for part in parts]
    return True if True in truths else (None if None in truths else False)


def is_paged(clause: Clause, reading: Reading) -> bool:
    """Whether a clause that holds is a page in this row."""
    return clause.severity is Severity.PAGE or (bool(clause.page_when) and bool(_any(clause.page_when, reading)))


@dataclass(frozen=True, kw_only=True)
class FindingSpec:
    """A finding: its words, its clauses, and what it explains."""

    id: str
    title: str
    meaning: str
    severity: Severity
    chart: str
    explains: frozenset[str] = frozenset()
    beside: str = ""
    at_top: str = ""
    predicts: bool = False
    without_lag: str = ""
    clauses: tuple[Clause, ...] = ()


class HealthyRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The healthy range of a signal, both ends included; `target` is the point that it is a distance from."""

    least: float = -math.inf
    most: float = math.inf
    target: float = 0.0
    times_when_lagging: float = 1.0
    times_when_noisy: float = 1.0
    only_if_unknown: str = ""
    not_at_top: bool = False
    by: str = "median"

    def holds(self, value: float) -> bool:
        """Whether a value is inside."""
        return self.least <= value <= self.most

    def widened(self, times: float) -> HealthyRange:
        """Return the range with its ends so many times as far from its target."""
        least, most = (self.target + times * (end - self.target) for end in (self.least, self.most))
        return msgspec.structs.replace(self, least=least, most=most)

    def __str__(self) -> str:
        if math.isinf(self.least):
            return f"< {self.most:g}"
        return f"> {self.least:g}" if math.isinf(self.most) else f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Catalogue:
    """All findings in the order of causes, and the healthy ranges of signals."""

    findings: tuple[FindingSpec, ...]
    ranges: Mapping[str, HealthyRange]

    @cached_property
    def by_id(self) -> Mapping[str, FindingSpec]:
        """The findings by id."""
        return {finding.id: finding for finding in self.findings}

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each finding in the order of causes."""
        return {finding.id: place for place, finding in enumerate(self.findings)}

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """All clauses, in order."""
        return tuple(clause for finding in self.findings for clause in finding.clauses)

    @cached_property
    def by_key(self) -> Mapping[str, Clause]:
        """The clauses by `finding.clause`."""
        return {clause.key: clause for clause in self.clauses}

    @cached_property
    def signals(self) -> frozenset[str]:
        """The names that clauses read."""
        read = (signal for clause in self.clauses for comparison in clause.comparisons for signal in comparison.signals)
        return frozenset((*read, *self.ranges, *MEASURED))

    @cached_property
    def read_early(self) -> frozenset[str]:
        """The names of which clauses read values 21 to 120."""
        parts = (comparison for clause in self.clauses for comparison in clause.comparisons)
        return frozenset(part.signals[0] for part in parts if part.transform.endswith("_early"))

    @cached_property
    def watched(self) -> frozenset[str]:
        """The names whose rows without a finite number count."""
        return frozenset(
            comparison.signals[0]
            for clause in self.clauses
            for comparison in clause.when
            if comparison.transform in (LOST, NONFINITE)
        )


class _ClauseEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str | tuple[str, ...] = ()
    change: str | tuple[str, ...] = ()
    any: tuple[tuple[str, ...], ...] = ()
    where: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    only_if: tuple[tuple[str, ...], ...] = ()
    begins_unless: tuple[str, ...] = ()
    hold: str = ""
    title: str = ""
    meaning: str = ""
    severity: str = ""
    page_when: tuple[tuple[str, ...], ...] = ()
    remedy: str = ""
    chart: str = ""
    seen: tuple[int, int] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ranges: dict[str, HealthyRange]
    findings: dict[str, _Entry]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    meaning: str
    severity: str
    chart: str
    clauses: dict[str, _ClauseEntry]
    explains: tuple[str, ...] = ()
    beside: str = ""
    at_top: str = ""
    predicts: bool = False
    without_lag: str = ""


@cache
def builtin_catalogue() -> Catalogue:
    """Return the catalogue of findings.yaml."""
    text = files("trmon.domain.findings").joinpath("findings.yaml").read_bytes()
    file = msgspec.yaml.decode(text, type=_File)
    return Catalogue(tuple(_finding(id_, entry) for id_, entry in file.findings.items()), file.ranges)


def _finding(id_: str, entry: _Entry) -> FindingSpec:
    return FindingSpec(
        id=id_,
        title=entry.title,
        meaning=entry.meaning,
        severity=Severity(entry.severity),
        chart=entry.chart,
        explains=frozenset(entry.explains),
        beside=entry.beside,
        at_top=entry.at_top,
        predicts=entry.predicts,
        without_lag=entry.without_lag,
        clauses=tuple(_clause(id_, entry, name, clause) for name, clause in entry.clauses.items()),
    )


_TITLES_OF_CLIENT = {f"corrupt_logprobs.{one.value}": one.title for one in LogprobMistake}


def _clause(finding: str, entry: _Entry, name: str, given: _ClauseEntry) -> Clause:
    texts = given.level or given.change
    when = tuple(map(comparison, (texts,) if isinstance(texts, str) else texts))
    title = given.title or _TITLES_OF_CLIENT.get(f"{finding}.{name}", "")
    is_average = when[0].transform in AVERAGES or when[0].measure in COMPUTED
    return Clause(
        id=name,
        finding=finding,
        is_change=bool(given.change),
        when=when,
        any=tuple(tuple(map(comparison, part)) for part in given.any),
        where=tuple(map(comparison, given.where)),
        unless=tuple(map(comparison, given.unless)),
        only_if=tuple(tuple(map(comparison, part)) for part in given.only_if),
        begins_unless=tuple(map(comparison, given.begins_unless)),
        hold=_hold(given.hold) if given.hold else AT_ONCE if is_average else USUAL_HOLD,
        title=title or entry.title,
        meaning=given.meaning or entry.meaning,
        severity=Severity(given.severity or entry.severity),
        page_when=tuple(tuple(map(comparison, part)) for part in given.page_when),
        remedy=given.remedy or (name if title else finding),
        chart=given.chart or entry.chart,
        seen=given.seen,
    )


def _hold(text: str) -> Hold:
    found = _HOLD.fullmatch(text)
    if found is None:
        raise InvalidInput("hold", f"must be such as 3 of 5, and is {text!r}")
    first, first_rows, needed, rows = (int(part or 0) for part in found.groups())
    return Hold(needed, rows, first, first_rows)


def comparison(text: str) -> Comparison:
    """Return a comparison such as `kl_k3.over_start > 20` or `kl_k3 unknown`. Errors: InvalidInput."""
    bare = text if " " in text else f"{text} >= 1"
    found = _COMPARISON.fullmatch(bare)
    if found is None:
        raise InvalidInput("comparison", f"must be such as kl_k3 > 0.05, and is {text!r}")
    measure, side, limit = found.groups()
    return Comparison(measure, side or "", float(limit or "nan"), reader_of(measure))


def reader_of(measure: str) -> Callable[[Reading], float]:
    """Return how a measure is read in a row; NaN where it is not known. Errors: InvalidInput if it does not exist."""
    if measure in COMPUTED:
        return lambda reading: reading.computed(measure)
    name, _, transform = measure.partition(".")
    if transform in (LOST, NONFINITE):
        return lambda reading: _nonfinite(reading, name, must_be_usual=transform == LOST)
    if transform not in TRANSFORMS:
        raise InvalidInput("measure", f"{measure!r} has no transform {transform!r}; known are {', '.join(TRANSFORMS)}")
    read = TRANSFORMS[transform]
    if not transform:
        return lambda reading: reading.memory(name).now

    def value(reading: Reading) -> float:
        memory = reading.memory(name)
        return read(memory, reading) if memory.count else math.nan

    return value


def _nonfinite(reading: Reading, name: str, *, must_be_usual: bool) -> float:
    memory = reading.nonfinite.get(name)
    if memory is None:
        return math.nan
    counts = not must_be_usual or memory.numbers >= USUAL_NUMBERS
    return float(counts and memory.bad[-1:] == (reading.row,))


def with_limits(
    catalogue: Catalogue, finding: str, *, limits: Mapping[str, float], severity: Severity | None
) -> Catalogue:
    """Return the catalogue with a finding's limits, of first comparisons, and severity. Errors: InvalidInput."""
    spec = catalogue.by_id[finding]
    known = {clause.id for clause in spec.clauses}
    for name in limits:
        if name not in known:
            raise InvalidInput(f"limits.{name}", f"is no clause of {finding}; it has {', '.join(sorted(known))}")

    def changed(clause: Clause) -> Clause:
        limit = limits.get(clause.id)
        when = clause.when if limit is None else (replace(clause.when[0], limit=limit), *clause.when[1:])
        return replace(clause, when=when, severity=severity or clause.severity)

    new = replace(spec, severity=severity or spec.severity, clauses=tuple(map(changed, spec.clauses)))
    return replace(catalogue, findings=tuple(new if old.id == finding else old for old in catalogue.findings))


def without(catalogue: Catalogue, finding: str) -> Catalogue:
    """Return the catalogue without the clauses of a finding."""
    rest = (replace(spec, clauses=()) if spec.id == finding else spec for spec in catalogue.findings)
    return replace(catalogue, findings=tuple(rest))
