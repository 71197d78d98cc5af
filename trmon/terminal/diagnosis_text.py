"""Print a diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.domain.collapse_risk.risk_reading import RiskLevel, risk_sentence
from trmon.domain.diagnosis.diagnosis import Assurance
from trmon.domain.finding import Finding
from trmon.domain.framework_names.translation import FRAMEWORKS
from trmon.domain.health.verdict import MAX_MEASUREMENTS
from trmon.domain.rules.condition import ThresholdSide
from trmon_client.api import CollapseRiskInfo, DiagnosisInfo, EvidenceInfo, FindingInfo
from trmon_client.core.signals.catalogue import signal_words


def print_diagnosis(found: DiagnosisInfo, console: Console) -> None:
    """Print a diagnosis: alerts on the run's state, the cause, its evidence and fix, and what was not measured."""
    if found.framework is not None:
        console.print(f"{found.framework}'s metric names", highlight=False, soft_wrap=True)
    for fires in found.circumstances:
        console.print(f"[bold]{escape(fires.summary)}[/bold]", highlight=False, soft_wrap=True)
        console.print(escape(f"do: {fires.fix}"), highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(_headline(found))}[/bold]", highlight=False, soft_wrap=True)
    if found.collapse_risk is not None:
        for line in risk_lines(found.collapse_risk):
            console.print(escape(line), highlight=False, soft_wrap=True)
    for observation in found.observed:
        console.print(evidence_table(observation))
    for line in _lines(found):
        console.print(escape(line), highlight=False, soft_wrap=True)


def risk_lines(risk: CollapseRiskInfo) -> Iterator[str]:
    """Yield the risk of a collapse while one can come, and in one line which inputs its model does not know."""
    if risk.level == RiskLevel.PAST.value:
        return
    limits = f"warns at {risk.warn_at:.0%}, pages at {risk.page_at:.0%}"
    yield f"{risk_sentence(risk.probability, risk.driven_by)} ({limits})"
    unknown = {"not sent": risk.missing, "beyond what the model was fitted to": risk.outside}
    said = [f"{what}: {', '.join(map(signal_words, names))}" for what, names in unknown.items() if names]
    if said:
        yield f"    {'; '.join(said)}"


def _headline(found: DiagnosisInfo) -> str:
    where = f"step {found.step}, {found.steps} steps read"
    if found.since_step is None:
        signals = "the signals alone: " if found.circumstances else ""
        return f"{signals}{assurance_phrase(found)} ({where})"
    last_good = "" if found.last_good_step is None else f", last good step {found.last_good_step}"
    letter = "" if found.primary == Finding.UNKNOWN.value else f"{found.primary}: "
    return f"{letter}{found.title} since step {found.since_step}{last_good} ({where})"


def assurance_phrase(found: DiagnosisInfo) -> str:
    """Return what is known of a run without a finding, e.g. `no drift found so far`."""
    if found.assurance == Assurance.TRAINING_HEALTHY.value:
        return "training healthy, agreement not measured"
    so_far = " so far" if found.needs_more_steps and found.assurance == Assurance.NO_DRIFT_FOUND.value else ""
    values = ", ".join(f"{item.signal} {item.value:.3g}" for item in found.agreement[:MAX_MEASUREMENTS])
    return f"{found.assurance}{so_far}{f': {values}' if values else ''}"


def evidence_table(observation: FindingInfo) -> Table:
    """Return the evidence of a finding as a table."""
    title = f"{observation.finding} {observation.title}"
    table = Table("signal", "value", "limit", "since step", title=escape(title), title_justify="left")
    for item in observation.evidence:
        table.add_row(item.signal, f"{item.value:.4g}", _limit(item), str(item.since_step))
    return table


def _limit(item: EvidenceInfo) -> str:
    if item.rules_out:
        return "usual"
    if item.away_from is not None:
        return f"{item.away_from:g} ± {item.threshold:g}"
    return f"{'>' if item.bound == ThresholdSide.ABOVE.value else '<'} {item.threshold:g}"


def _lines(found: DiagnosisInfo) -> Iterator[str]:
    for item in found.shortfall:
        yield f"not healthy: {item.signal} is {item.value:.4g} ({_limit(item)})"
    yield from remedy_lines(found)
    yield f"correction: {found.quadrant.advice} ({found.quadrant.quadrant})"
    yield f"stage: {found.escalation.advice}"
    yield from _unknown(found)
    yield from (f"ignored: {item.name} ({item.why})" for item in found.ignored)


def _unknown(found: DiagnosisInfo) -> Iterator[str]:
    """Yield in one line which findings are not known, and what gives them."""
    waiting = [lost for lost in found.unknown if all(gap.more_steps for gap in lost.missing)]
    lacking = [lost for lost in found.unknown if lost not in waiting]
    parts = []
    if lacking:
        parts.append(f"{_names(lacking)}{'' if found.framework else _arguments(lacking)}")
    if waiting:
        parts.append(f"with more steps: {_names(waiting)}")
    if parts:
        yield f"not known: {'; '.join(parts)}{_option_for_agreement(found)}"


def _names(findings: Sequence[FindingInfo]) -> str:
    return ", ".join(f"{lost.finding} {lost.title}" for lost in findings)


def _arguments(lacking: Sequence[FindingInfo]) -> str:
    """Return which arguments of log_batch give what is lacking, the first in words."""
    provided = dict.fromkeys(gap.provide for lost in lacking for gap in lost.missing if not gap.more_steps)
    # What an argument of log_batch gives comes before what nothing can give.
    first, *others = sorted(provided, key=lambda provide: not provide.startswith("pass "))
    more = f", and {len(others)} more: trmon diagnose --json" if others else ""
    return f" ({first}{more})"


def _option_for_agreement(found: DiagnosisInfo) -> str:
    """Return the framework's own option for the agreement of its engines, where a log lacks that."""
    option = next((table.agreement for table in FRAMEWORKS if table.framework == found.framework), "")
    is_needed = bool(option) and not found.agreement
    return f"; {found.framework} logs the agreement of its engines with {option}" if is_needed else ""


def remedy_lines(found: DiagnosisInfo, *, framework: str | None = None) -> Iterator[str]:
    """Yield the remedy with its options, those of one framework if it is named and has any.

    Options of verl are arguments of its command line, quoted for a shell; those of TRL are keywords of GRPOConfig.
    """
    if found.remedy is None:
        if found.incident is not None and found.since_step is not None:
            yield f"{when_to_act(found.has_ended)}: {found.incident.fix}"
        return
    remedy = found.remedy
    yield f"{when_to_act(found.has_ended)}: {remedy.fix}"
    yield from _options(framework, {"verl": remedy.verl, "TRL": remedy.trl})
    yield from _in_words(framework, {"verl": remedy.verl_in_words, "TRL": remedy.trl_in_words})
    yield f"if it persists: {remedy.persists}"
    yield from _options(framework, {"verl": remedy.verl_next, "TRL": remedy.trl_next})
    yield from _in_words(framework, {"verl": remedy.verl_next_in_words, "TRL": remedy.trl_next_in_words})


def when_to_act(has_ended: bool) -> str:
    """Return the label of what to do: a run that has ended cannot be changed any more."""
    return "for the next run" if has_ended else "do"


def _options(framework: str | None, options: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for name, known in _shown(framework, options).items():
        for option, value in known.items():
            yield f"    {name}  {_option(name, option, value)}"


def _in_words(framework: str | None, options: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for name, unknown in _shown(framework, options).items():
        for option, words in unknown.items():
            yield f"    {name}  {option}: {words}"


def _shown(framework: str | None, options: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    return {name: known for name, known in options.items() if name == framework} or options


def _option(framework: str, option: str, value: str) -> str:
    """Return an option to paste."""
    return quote(f"{option}={value}") if framework == "verl" else f"{option}={value},"
