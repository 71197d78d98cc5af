"""Findings and their clauses in words: what stands, what each compares with which limit, and for how many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import calibration_words
from trmon.domain.findings.catalogue import AT_ONCE, Clause, Comparison, is_beyond, relaxed_limit
from trmon.domain.findings.judge import Evidence
from trmon.domain.findings.measures import sources_of
from trmon.domain.findings.verdict import Found, Judgement, number
from trmon.domain.severity import Severity
from trmon.domain.signals.derived_signals import DERIVED
from trmon.domain.signals.windows import LARGEST
from trmon_client.core.signals.catalogue import signal_words

OF_TRANSFORM: Mapping[str, str] = {
    "": "{signal} is {value}",
    "mean": "{signal} is {value} over 20 rows",
    "mean_of_others": "{signal} is {value} over 20 rows without the largest",
    "mean_size": "{signal} is {value} over 20 rows",
    "mean_over_start": "{signal} is {value} times its start",
    "average": "{signal} is {value} on average",
    "average_over_start": "{signal} is {value} times its start",
    "average_over_usual": "{signal} is {value} times its start",
    "average_over_early": "{signal} is {value} times its early level",
    "average_off_one": "{signal} is off 1 by {value}",
    "average_errors": "{signal} is off 1 by {value} standard errors",
    "beyond_noise": "the change of {signal} is {value} times its noise",
    "over_start": "{signal} is {value} times its start",
    "over_recent": "{signal} is {value} times its recent median",
    "over_before": "{signal} is {value} times its median before",
    "over_early": "{signal} is {value} times its early level",
    "above_early": "{signal} is {value} above its early level",
    "over_usual": "{signal} is {value} times its usual level",
    "above_usual": "{signal} is {value} above its usual level",
    "over_50_before": "{signal} is {value} times its level 50 rows before",
    "off_before": "{signal} changed by a factor of {value} in 20 rows",
    "off_one": "{signal} is off 1 by {value} over 20 rows",
    "off_one_errors": "{signal} is off 1 by {value} standard errors",
    "off_unit": "{signal} is that of another base within {value}",
    "rises": "{signal} rose in {value} rows running",
    "growth": "{signal} has grown by a factor of {value} in 100 rows",
    "growth_errors": "the growth of {signal} is {value} times its noise",
    "rise": "{signal} has risen by {value} in 100 rows",
    "same": "{signal} is the same in {value} of 20 rows",
    "different": "{signal} has {value} values in 20 rows",
    "below_peak": "{signal} is {value} of its range below its peak",
    "below_peak_errors": "{signal} is {value} times its noise below its peak",
    "lost": "{signal} is not a number",
    "nonfinite": "{signal} is not a number",
}
OF_MEASURE: Mapping[str, str] = {
    "fall": "the reward fell from {then} to {now}",
    "eval_fall": "the reward of evaluations fell from {then} to {now}",
    "fall.recent": "the reward fell by {value} of what counts as a collapse",
    "reward_since_eval_peak": "the reward of training rose by {value} standard errors meanwhile",
    "reward_mean.above_floor": "the reward is at its lowest, {now}",
    "reward_floor_errors": "the reward is at its lowest, {now}, for 50 rows",
    "zeros.count": "{value} log-probs of exactly 0 in 10 rows at tokens that the trainer finds unlikely",
    "zeros.rows": "in {value} rows",
    "zeros.share": "{percent} of the log-probs are dropped",
    "zeros.share_of_gaps": "{percent} of the large gaps are such zeros",
    "gaps.count": "{value} tokens whose probabilities differ by more than 0.5 in 20 rows",
    "gaps.share": "{percent} of the tokens have probabilities that differ by more than 0.5",
    "zero_tail.share": "{percent} of the tokens stand in zeros at the end of responses",
    "zero_tail.against_chance": "{value} times as many as chance explains",
    "spread_share": "the spread over sequences is {value} of what independent tokens have",
    "kl_k1_share": "the signed KL is {value} of the mean absolute log-ratio",
    "kl_k1.over_abs": "the signed KL is {value} of the mean absolute log-ratio",
    "slopes.smaller": "the log-ratio follows the log-prob with a slope of {value}",
    "slopes.factor": "the two slopes differ by a factor of {value}",
    "slopes.spread": "the slope is steady within a factor of {value}",
    "steady_slopes.corr": "the log-ratio follows the log-prob in 5 rows with one slope and a correlation of {value}",
    "slopes.over_past": "the slope is {value} times its largest before",
    "slopes.ramp_rows": "it came within {value} rows",
    "advantage_size": "the largest advantage is {value}",
    "risk": "the probability of a collapse is {value}",
    "risk_over_limit": "the probability of a collapse is {now}",
    "replayed_flip_rate": "{percent} of the replayed routings differ",
}


OF_VIEW: Mapping[str, str] = {
    "pearson_gap": "the distance from 1 of the {signal}",
    "ppl_gap": "the distance from 1 of the {signal}",
    "kl_k1_size": "the size of the {signal}",
}
"""The words of what is compared in place of a signal itself."""
OF_DISTANCE: Mapping[str, str] = {
    "pearson_gap": "{signal} is {value} below 1",
    "ppl_gap": "{signal} is off 1 by {value}",
}
"""The words for the newest distance of a signal."""


def evidence_words(evidence: Evidence) -> str:
    """Return a comparison that holds, its limit unless 0, and the value before: `KL per token is 0.2 (limit 0.05)`."""
    name, _, transform = evidence.measure.partition(".")
    distance = OF_DISTANCE.get(evidence.measure)
    words = distance or OF_MEASURE.get(evidence.measure) or OF_TRANSFORM[transform]
    view = "{signal}" if distance else OF_VIEW.get(name, "{signal}")
    told = words.format(
        signal=view.format(signal=words_of_signal(evidence.signal)),
        value=number(evidence.value),
        percent=percent(evidence.value),
        then="unknown" if evidence.then is None else number(evidence.then),
        now="unknown" if evidence.now is None else number(evidence.now),
    )
    if evidence.measure == "risk_over_limit":
        return f"{told} ({calibration_words(model_in_use().file)})"
    if transform in ("lost", "nonfinite") or evidence.measure in ("fall", "eval_fall"):
        return told
    if evidence.value >= LARGEST:
        return f"{words_of_signal(evidence.signal)} was 0 before"
    asides = []
    if evidence.limit:
        asides.append(f"limit {number(evidence.limit)}")
        if not is_beyond(evidence.side, evidence.value, evidence.limit):
            asides.append(f"over at {number(relaxed_limit(evidence.side, evidence.limit))}")
    if evidence.then is not None and not transform:
        asides.append(f"{number(evidence.then)} before")
    return f"{told} ({'; '.join(asides)})" if asides else told


def words_of_signal(name: str) -> str:
    """Return the words of a signal of any kind."""
    spec = DERIVED.get(name)
    return spec.words if spec is not None else signal_words(name)


def percent(share: float) -> str:
    """Return a share as a percentage with two digits."""
    return f"{100.0 * share:.2g}%" if share < 1.0 else f"{100.0 * share:.0f}%"


def headline(found: Found) -> str:
    """Return a finding with its own steps, such as `engine mismatch since step 62`."""
    if found.ended is not None:
        return f"{found.title} at {found.since.step} to {found.ended.step}, over"
    return f"{found.title} since step {found.since.step}{' (from the start)' if found.from_start else ''}"


def illness_words(judgement: Judgement) -> str:
    """Return the leading finding since its illness: `engine mismatch since step 62 (last good step 61)`."""
    lead, since, last_good = judgement.lead, judgement.since, judgement.last_good
    assert lead is not None
    assert since is not None
    words = headline(structs.replace(lead, since=since, from_start=lead.from_start and since == lead.since))
    if last_good is None:
        return words
    earlier = "" if last_good.attempt == judgement.place.attempt else " of an earlier attempt"
    return f"{words} (last good step {last_good.step}{earlier})"


def summary_line(run: str, words: str, evidence: Sequence[Evidence]) -> str:
    """Return the line of an alert: the run, what it has since when, and the comparison that decides."""
    return ": ".join((run, words, *map(evidence_words, evidence[:1])))


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
