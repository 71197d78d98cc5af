"""Rules in words, for runbooks: when a rule fires, and on what terms."""

from __future__ import annotations

from collections.abc import Iterator

from trmon.domain.rules.condition import AllOf, AnyOf, Comparison, InState, SignalAbsent, TwoTrainersLive
from trmon.domain.rules.rule import RowSelection, Rule


def condition_in_words(when: object, depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the lines of a condition, each with its depth: parts of `any of` and `all of` are one deeper."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            yield depth, f"{'any' if isinstance(when, AnyOf) else 'all'} of"
            for part in parts:
                yield from condition_in_words(part, depth + 1)
        case Comparison():
            label = when.measure.label(when.signal)
            subject = (
                f"`{label}`" if when.away_from is None else f"the distance between `{label}` and {when.away_from:g}"
            )
            clear = "" if when.clear == when.threshold else f"; once it fires, {when.bound.value} {when.clear:g}"
            yield depth, f"{subject} is {when.bound.value} {when.threshold:g}{clear}"
        case SignalAbsent(signal):
            yield depth, f"`{signal}` is not known"
        case InState(state):
            yield depth, f"the run is {state.value}"
        case TwoTrainersLive(seconds):
            yield depth, f"two launches of one rank have both sent heartbeats for over {seconds:g} s"
        case _:
            raise TypeError(f"no words for {when}")


def terms_in_words(rule: Rule) -> Iterator[str]:
    """Yield the severity of a rule, which rows it reads, and for how many steps its condition must hold."""
    enforcing = rule.severity_when_enforcing
    yield f"severity: {rule.severity.value}" + (f", {enforcing.value} in `enforce`" if enforcing else "")
    if not rule.reads_batches:
        return
    yield f"reads {'every update' if rule.reads is RowSelection.EVERY_UPDATE else 'the gauge row'} of a step"
    yield f"fires after {_steps(rule.for_steps)}, resolves after {_steps(rule.clear_for_steps)}"
    if rule.immune_steps:
        yield f"does not fire in the first {rule.immune_steps} steps of a run"


def _steps(n: int) -> str:
    return "one step" if n == 1 else f"{n} steps in a row"
