"""Clauses in words: what each compares with which limit, for how many rows, and on how many real runs it was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trmon.domain.findings.catalogue import AT_ONCE, Clause, Comparison
from trmon.domain.findings.measures import sources_of
from trmon.domain.findings.sentences import OF_MEASURE, OF_TRANSFORM, OF_VIEW, percent, words_of_signal
from trmon.domain.severity import Severity

SIDES: Mapping[str, str] = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most"}
OF_TRUTH: Mapping[str, str] = {
    "rising": "the reward rises",
    "has_risen": "the reward is above its start",
    "at_top": "the reward is at its top",
    "reward_mean.above_floor": "the reward is at its lowest",
}
"""Measures that are true or false in a row."""
OF_FALL: Mapping[str, str] = {
    "fall": "the fall of the reward from its peak is {value} of a collapse",
    "fall.recent": "the fall of the reward from its peak was {value} of a collapse in the newest 20 rows",
    "eval_fall": "the fall of the evaluations' reward from its peak is {value} of a collapse",
    "risk_over_limit": "the probability of a collapse is {value} times that at which its model warns",
    "reward_floor_errors": "the mean reward of 50 rows is within {value} standard errors of its lowest",
}
OF_NAME: Mapping[str, str] = {
    **{name: words.format(signal=words_of_signal(sources_of(name)[0])) for name, words in OF_VIEW.items()},
    "settled_kl_k3": f"{words_of_signal('staleness_kl_k3')}, while the learning rate does not rise,",
}
NO_EXAMPLE = "no real example"


def comparison_words(comparison: Comparison) -> str:
    """Return a comparison with its limit, such as `KL per token is more than 0.05`."""
    measure, transform = comparison.measure, comparison.transform
    name = comparison.signals[0]
    signal = OF_NAME.get(name) or words_of_signal(name)
    if not comparison.side:
        return f"{signal} is not known"
    if measure in OF_TRUTH:
        return OF_TRUTH[measure]
    side = SIDES[comparison.side]
    template = OF_FALL.get(measure) or OF_MEASURE.get(measure) or OF_TRANSFORM[transform]
    return template.format(
        signal=signal, value=f"{side} {comparison.limit:g}", percent=f"{side} {percent(comparison.limit)}"
    )


def clause_words(clause: Clause) -> str:
    """Return when a clause holds, in one sentence without its end."""
    words = _all(clause.when)
    if clause.any:
        words += f"; and {_alternatives(clause.any)}"
    if clause.where:
        words += f"; where {_all(clause.where)}"
    if clause.unless:
        words += f"; unless {' or '.join(map(comparison_words, clause.unless))}"
    if clause.only_if:
        words += f"; it begins only if {_alternatives(clause.only_if)}"
    if clause.begins_unless:
        words += f"; it does not begin while {' or '.join(map(comparison_words, clause.begins_unless))}"
    return words if clause.hold == AT_ONCE else f"{words}; in {clause.hold} rows"


def severity_words(clause: Clause) -> str:
    """Return how severe a clause is, and what makes it a page."""
    if clause.severity is Severity.PAGE or not clause.page_when:
        return clause.severity.value
    return f"{clause.severity.value}; page when {_alternatives(clause.page_when)}"


def seen_words(clause: Clause) -> str:
    """Return on how many real runs a clause was seen, right and wrong."""
    return NO_EXAMPLE if clause.seen is None else "right on {}, wrong on {} real runs".format(*clause.seen)


def _all(parts: Iterable[Comparison]) -> str:
    return " and ".join(map(comparison_words, parts))


def _alternatives(parts: Iterable[tuple[Comparison, ...]]) -> str:
    return ", or ".join(map(_all, parts))
