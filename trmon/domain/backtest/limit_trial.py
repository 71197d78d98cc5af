"""Limit trial: the messages that a rule set sends over stored runs, beside those with another limit of one rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trmon.domain.backtest.evaluation import StoredHistory, backtest_run
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.findings.catalogue import with_limits
from trmon.domain.findings.sentences import clause_words
from trmon.domain.rules.condition import Comparison, FindingStands
from trmon.domain.rules.rule import Rule, RuleSet, condition_in_words
from trmon.domain.severity import Severity
from trmon_client.api.alerts import TunableLimitInfo

OWN_LIMIT = "limit"
"""The name of the limit of a rule over signals, which has one comparison."""
NOW, TRIED = "now", "tried"
MAX_STEPS = 10_000
"""Runs of more steps are skipped: each row takes half a millisecond."""


def tunable_limits(rule: Rule) -> Iterator[TunableLimitInfo]:
    """Yield the limits of a rule that can be tried: none of rules over states, or of several comparisons."""
    if isinstance(rule.when, FindingStands):
        for clause in rule.when.finding.clauses:
            yield TunableLimitInfo(id=clause.id, words=clause_words(clause), limit=clause.decisive.limit)
    elif isinstance(rule.when, Comparison):
        [(_, words)] = condition_in_words(rule.when)
        yield TunableLimitInfo(id=OWN_LIMIT, words=words, limit=rule.when.threshold)


def with_limit(rules: RuleSet, rule: Rule, *, limit_id: str, limit: float) -> RuleSet:
    """Return a rule set in which one rule has another limit; what clears it keeps its ratio. Errors: InvalidInput."""
    known = {one.id: one for one in tunable_limits(rule)}
    if limit_id not in known:
        raise InvalidInput("limit_id", f"{rule.name} has no limit {limit_id!r}{did_you_mean(limit_id, known)}")
    if rule.is_finding:
        changed = with_limits(rules.catalogue, rule.name, limits={limit_id: limit}, severity=None)
        return replace(rules, catalogue=changed)
    assert isinstance(rule.when, Comparison)
    clear = limit * rule.when.clear / rule.when.threshold if rule.when.threshold else limit
    other = replace(rule, when=replace(rule.when, threshold=limit, clear=clear))
    return replace(rules, others=tuple(other if one.name == rule.name else one for one in rules.others))


@dataclass(slots=True)
class TrialCounts:
    """The messages of a rule set, by the tried rule and in all, its pages, and the collapses that it announced."""

    of_rule: int = 0
    messages: int = 0
    pages: int = 0
    warned: int = 0


class LimitTrial:
    """Adds up runs; messages are those of rows that closed after `since`, and of a run's first 200 alerts."""

    def __init__(self, now: RuleSet, tried: RuleSet, *, rule: str, since: float) -> None:
        self._rule_sets = {NOW: now, TRIED: tried}
        self._rule, self._since = rule, since
        self.n_runs = self.n_skipped = self.n_collapsed = 0
        self.counts = {NOW: TrialCounts(), TRIED: TrialCounts()}

    def add(self, history: StoredHistory) -> None:
        """Add a run; one of very many steps is skipped, so that each is a few seconds at most."""
        if (history.run.last_step or 0) > MAX_STEPS:
            self.n_skipped += 1
            return
        run = backtest_run(history, self._rule_sets)
        onset = run.onset.step
        self.n_runs += 1
        self.n_collapsed += onset is not None
        for outcome in run.outcomes:
            sent = [one for one in outcome.alerts if one.is_sent and (one.at or 0.0) >= self._since]
            counts = self.counts[outcome.rules]
            counts.messages += len(sent)
            counts.of_rule += sum((one.cause or one.rule) == self._rule for one in sent)
            counts.pages += sum(one.severity is Severity.PAGE for one in sent)
            first = outcome.first_alarm
            counts.warned += onset is not None and first is not None and first < onset
