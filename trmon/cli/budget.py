"""`trmon budget`: print what a run's mismatch and lag leave room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.identity import RunKey
from trmon.terminal.text import print_lines
from trmon_client.api import BudgetInfo
from trmon_client.api.answers import encode_answer
from trmon_client.api.budget import AdviceInfo, BudgetItemInfo, ShownByInfo

PRESENCE_MARKS = {"present": "!", "absent": "-", "unknown": "?"}


def budget_lines(found: BudgetInfo) -> Iterator[str]:
    """Yield the mismatch budget, the lag law, the split of the drift, its kinds, and the advice."""
    yield f"Budget at step {found.step} ({found.steps} steps read)"
    yield ""
    yield "Mismatch below which correction is conjectured to gain less than 0.3%:"
    yield from (_item(item) for item in found.mismatch)
    yield ""
    yield "Lag and learning rate (a law with fitted constants: a conjecture for this run):"
    yield from (f"  {words}" for words in found.lag_words)
    yield ""
    yield from _split(found)
    yield ""
    yield from _kinds(found)
    yield ""
    yield from _pipeline(found)
    if found.advice is not None:
        yield ""
        yield from _trainer_advice(found.advice)


def _item(item: BudgetItemInfo) -> str:
    value = "" if math.isnan(item.value) else f"{item.signal} {item.value:.3g}, "
    return f"  {item.state.replace('_', ' '):12}  {item.name} < {item.limit:g}: {value}{item.note}"


def _split(found: BudgetInfo) -> Iterator[str]:
    split = found.split
    yield "Where the drift comes from (lower bounds of the worst token's TV, and means):"
    for name, least, mean in (
        ("staleness", split.alpha_0, split.mean_staleness),
        ("mismatch", split.alpha_1, split.mean_mismatch),
    ):
        yield f"  {name:9}  {'' if math.isnan(least) else 'at least '}{_number(least)}, mean {_number(mean)}"
    if split.note:
        yield f"  {split.note}"
    if not math.isnan(split.mismatch_share):
        yield f"  mismatch makes {split.mismatch_share:.0%} of the sum of the bounds"
    if not math.isnan(split.exact_max):
        yield f"  exact TV   at most {_number(split.exact_max)}, mean {_number(split.exact_mean)}, from logits"
    if split.is_replayed:
        yield "  routing is replayed, which hides the difference of the routers and does not reduce it"
    if not math.isnan(found.minorizer):
        vacuous = " (vacuous: its bound exceeds the range of rewards)" if found.minorizer_vacuous > 0 else ""
        yield f"  minorizer  {found.minorizer:.3g}: the gain that the error bound leaves{vacuous}"


def _kinds(found: BudgetInfo) -> Iterator[str]:
    yield "Kinds of off-policyness (! this run has it, - it has not, ? cannot be told):"
    for kind in found.kinds:
        yield f"  {PRESENCE_MARKS.get(kind.presence, '?')} {kind.name}: {kind.why}{_shown(kind.shown_by)}"


def _pipeline(found: BudgetInfo) -> Iterator[str]:
    advice = found.pipeline
    yield "Advice by pipeline ([DRIFT]: its author's defaults, not laws):"
    for method in advice.methods:
        yield f"  {method.title}{_shown(method.shown_by)}: {method.method}"
    if advice.correction is not None:
        yield f"  {advice.correction}{_shown(advice.correction_shown_by)}"
    yield "Anti-patterns (! shown by this run, - not shown, ? cannot be told):"
    for pattern in advice.anti_patterns:
        mark = PRESENCE_MARKS.get(pattern.presence, "?")
        yield f"  {mark} {pattern.number} {pattern.name}: {pattern.why}{_shown(pattern.shown_by)}"


def _trainer_advice(advice: AdviceInfo) -> Iterator[str]:
    yield f"Advice to the trainer at step {advice.step} (applied only if its code opts in):"
    yield f"  learning rate x {advice.lr_scale:.3g}, for plain SGD x {advice.lr_scale_sgd:.3g}"
    yield from (f"  {name}: {reason}" for name, reason in advice.reasons.items())


def _shown(shown_by: Iterable[ShownByInfo]) -> str:
    values = ", ".join(f"{one.name} {one.value}" for one in shown_by)
    return f" ({values})" if values else ""


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3g}"


def budget_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the budget as JSON.")] = False,
) -> None:
    """Print which mismatch and lag a run can tolerate, where its drift comes from, and the advice for its pipeline."""
    with plain_errors(), service_of(url) as service:
        found = service.budget(str(RunKey.parse(run)))
        if as_json:
            echo_json(encode_answer(found))
        else:
            print_lines(console(), budget_lines(found))
