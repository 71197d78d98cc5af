"""Print a diagnosis as text: that of a run of the service and that of a log alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from trmon.domain.collapse_risk.risk_reading import RiskLevel, risk_sentence
from trmon.domain.findings.verdict import Word
from trmon.domain.severity import Severity
from trmon.terminal.text import print_lines
from trmon_client.api import DiagnosisInfo
from trmon_client.api.diagnosis import AnswersInfo, FindingInfo, RemedyInfo, UnmeasuredInfo
from trmon_client.core.signals.catalogue import signal_words

MAX_OVER = 8


def print_diagnosis(found: DiagnosisInfo, console: Console, *, says_word: bool = True) -> None:
    """Print a diagnosis: alerts on the run's state, the verdict, the findings with their evidence, and the remedy.

    Args: says_word: whether the verdict is printed where nothing was found, too.
    """
    for fires in found.circumstances:
        console.print(f"[bold]{escape(fires.summary)}[/bold]", highlight=False, soft_wrap=True)
        print_lines(console, [f"do: {fires.fix}"])
    if says_word or found.word == Word.FINDING.value:
        console.print(f"[bold]{escape(verdict_text(found))}[/bold]", highlight=False, soft_wrap=True)
    print_lines(console, (*diagnosis_lines(found), *unmeasured_lines(found.unmeasured)))


def verdict_text(found: DiagnosisInfo) -> str:
    """Return the verdict in one line, a finding that leads with its steps."""
    if found.word != Word.FINDING.value:
        return found.sentence
    lead = found.findings[0]
    return f"{lead.headline}{found.sentence.removeprefix(lead.title)}"


def diagnosis_lines(found: DiagnosisInfo) -> Iterator[str]:
    """Yield what a diagnosis says below its verdict: the findings with their evidence, the risk, and the remedy."""
    yield from finding_lines(found.findings, found.over, is_led=found.word == Word.FINDING.value)
    risk = found.collapse_risk
    if risk is not None and risk.level != RiskLevel.PAST.value:
        said = risk_sentence(risk.probability, risk.driven_by, calibration=risk.calibration)
        yield f"{said}; warns at {risk.warn_at:.0%}"
        if risk.missing:
            yield f"    not sent: {', '.join(map(signal_words, risk.missing))}"
    if found.word == Word.FINDING.value:  # The verdict names what is outside otherwise.
        named = {evidence.signal for one in found.findings for evidence in one.evidence}
        words = [
            f"{one.words} {one.value:.3g} (healthy {one.range})" for one in found.outside if one.signal not in named
        ]
        if words:
            yield f"{Word.OUTSIDE.value}: {', '.join(words)}"
    yield from remedy_lines(found.remedy)
    yield from answers_lines(found.answers)


def answers_lines(answers: AnswersInfo | None) -> Iterator[str]:
    """Yield how to read the worst answers, and the command to paste."""
    if answers is not None:
        yield from (f"answers: {answers.words}", f"    {answers.command}")


def finding_lines(standing: Sequence[FindingInfo], over: Sequence[FindingInfo], *, is_led: bool) -> Iterator[str]:
    """Yield the findings with their evidence, the meaning of the first one, and a line for each that has ended.

    Args: is_led: whether the first one leads, so that the verdict has named it.
    """
    for place, found in enumerate(standing):
        if found.severity == Severity.INFO.value:
            yield f"noted from step {found.since_step}: {found.title}"
            continue
        if place or not is_led:
            yield found.headline
        if not place:
            yield f"    {found.meaning}"
        if found.beyond_step is not None:
            yield f"    beyond the limit from step {found.beyond_step}"
        yield from (f"    {evidence.words}" for evidence in found.evidence)
    yield from (found.headline for found in over[-MAX_OVER:])
    if len(over) > MAX_OVER:
        yield f"{len(over) - MAX_OVER} findings before them, over"


def remedy_lines(remedy: RemedyInfo | None) -> Iterator[str]:
    """Yield what to do, the options to paste, those whose values are not known, and what to do if it persists."""
    if remedy is None:
        return
    yield f"do: {remedy.first}"
    if remedy.checkpoint:
        yield f"    {remedy.checkpoint}"
    yield from (f"    {option}" for option in remedy.to_paste)
    yield from (f"    {option}: {words}" for option, words in remedy.options_in_words.items())
    if remedy.then:
        yield f"if it persists: {remedy.then}"
        then = {**remedy.then_options, **remedy.then_options_in_words}
        yield from (f"    {option}: {value}" if value else f"    {option}" for option, value in then.items())


def unmeasured_lines(unmeasured: Sequence[UnmeasuredInfo], *others: str) -> Iterator[str]:
    """Yield in one line what is not measured, and how to measure it. Args: others: more of it, in words."""
    words = (*(f"{item.what} ({item.how})" for item in unmeasured), *others)
    if words:
        yield f"not measured: {'; '.join(words)}"
