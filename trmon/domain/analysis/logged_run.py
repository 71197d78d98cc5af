"""A run as its trainer's log has it: the lines of each step as one row of the judge, and what the run cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trmon.domain.analysis.logged_steps import LoggedStep, LogItems, LogSurvey, LogTally, logged_steps
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import USUAL_NUMBERS, Catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.measures import remembered_as
from trmon.domain.framework_names.translation import FRAMEWORKS
from trmon.domain.signals.windows import is_number

SHOWN_NAMES = 8
STEP_SECONDS = "step_seconds"
NEVER_SPARSE = ("loss", "grad_norm")
"""They are numbers in each update, so that one NaN counts."""
FIRST_ATTEMPT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The rows of a log in the order of attempts and steps, and what was read of it.

    A value that is NaN was logged and is not finite; `nonfinite` has the first step of each name with NaN or infinity,
    `sparse` the names that tables fill with NaN in the steps that did not log them.
    """

    rows: tuple[Row, ...]
    tally: LogTally
    nonfinite: Mapping[str, int] = field(default_factory=dict)
    sparse: tuple[str, ...] = ()

    def column(self, name: str) -> list[float]:
        """Return the values of a signal, one a row, NaN where it is not known."""
        return [row.values.get(name, math.nan) for row in self.rows]


def read_logged_run(items: LogItems, survey: LogSurvey, *, source: str) -> LoggedRun:
    """Return the run in a log: its lines merged by step, where the last line that logs a signal counts.

    Args: source: what to call the log in errors. Errors: InvalidInput if no name of any row is known.
    """
    values: dict[Place, dict[str, float]] = {}
    nonfinite: dict[str, int] = {}
    tally = LogTally(survey)
    for item in logged_steps(items, survey):
        tally.add(item)
        if not isinstance(item, LoggedStep) or not item.metrics.signals:
            continue
        row = values.setdefault(Place(item.attempt + FIRST_ATTEMPT, item.step), {})
        row.update(item.metrics.signals)
        if not math.isnan(item.metrics.step_seconds):
            row[STEP_SECONDS] = item.metrics.step_seconds
        for name in item.metrics.nonfinite:
            nonfinite.setdefault(name, item.step)
    if not values:
        found = ", ".join(islice((*tally.unknown, *tally.left_out), SHOWN_NAMES))
        example = next(iter((*tally.unknown, *tally.left_out)), "my_reward")
        frameworks = ", ".join(table.framework for table in FRAMEWORKS)
        raise InvalidInput(
            source,
            f"has no metric with a known name; it has: {found or 'no metrics'}. "
            f"Say what one means, such as --map '{example}=reward_mean'. Known are trmon's names (kl_k3, reward_mean, "
            f"entropy, grad_norm, ...) and those of {frameworks}",
        )
    places = sorted(values, key=lambda place: (place.attempt, place.step))
    rows = tuple(Row(place=place, values=values[place], facts={}) for place in places)
    signals = {name: signal for signal, name in tally.names.items() if signal not in NEVER_SPARSE}
    sparse = tuple(name for name in nonfinite if name in signals and _is_sparse(rows, signals[name]))
    nonfinite = {name: step for name, step in nonfinite.items() if name not in sparse}
    return LoggedRun(rows=rows, tally=tally, nonfinite=nonfinite, sparse=sparse)


def _is_sparse(rows: Sequence[Row], signal: str) -> bool:
    """Whether a signal is a number again after NaN, with few numbers before: the judge counts it as not logged, too."""
    numbers = [is_number(value) for row in rows if (value := row.values.get(signal)) is not None]
    first = numbers.index(False) if False in numbers else len(numbers)
    return first < USUAL_NUMBERS and any(numbers[first:])


def judged(rows: Sequence[Row], catalogue: Catalogue) -> JudgeState:
    """Return the judgement of a whole run: each row folded once, in order, and the end."""
    judge, state = Judge(catalogue), JudgeState()
    for row in rows:
        state = judge.fold(state, row)
    return judge.finish(state)


def not_judged(state: JudgeState, catalogue: Catalogue) -> Iterator[str]:
    """Yield the ids of findings for which a run has no data: of no clause is the deciding signal known."""
    for finding in catalogue.findings:
        names = {clause.decisive.signals[0] for clause in finding.clauses}
        sources = {source for name in names for source in remembered_as(name)}
        if names and sources.isdisjoint(state.signals) and names.isdisjoint(state.nonfinite):
            yield finding.id


SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The cost of a run, NaN where it is not known.

    `wasted_rollouts` is the share of groups whose answers all had the same reward, which have no advantage; hours are
    GPU-hours: `gpu_hours` of all steps whose duration is known, `wasted_gpu_hours` their part in wasted rollouts,
    `ill_gpu_hours` those since the illness began. `timed_steps` is the share of steps whose duration is known.
    """

    wasted_rollouts: float
    timed_steps: float
    gpu_hours: float
    wasted_gpu_hours: float
    ill_gpu_hours: float


def run_cost(run: LoggedRun, *, since: Place | None, gpus: int | None) -> RunCost:
    """Return the cost of a run, with the steps that a later attempt repeats.

    Args: since: where the illness began; gpus: how many it uses, None if not known, which leaves hours unknown.
    """
    wasted = run.column("zero_variance_groups")
    seconds = run.column(STEP_SECONDS)
    hours = [value * gpus / SECONDS_PER_HOUR if gpus else math.nan for value in seconds]
    begins = len(hours) if since is None else [row.place for row in run.rows].index(since)
    known_waste = _known(wasted)
    return RunCost(
        wasted_rollouts=math.fsum(known_waste) / len(known_waste) if known_waste else math.nan,
        timed_steps=len(_known(seconds)) / len(seconds),
        gpu_hours=_sum(hours),
        wasted_gpu_hours=_sum([share * spent for share, spent in zip(wasted, hours, strict=True)]),
        ill_gpu_hours=_sum(hours[begins:]),
    )


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if is_number(value)]


def _sum(values: Sequence[float]) -> float:
    known = _known(values)
    return math.fsum(known) if known else math.nan
