"""Print a preflight as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.domain.rules.condition import ThresholdSide
from trmon.terminal.preflight.preflight_schemas import CauseInfo, PreflightInfo, WorstTokenInfo
from trmon_client.api.diagnosis import EvidenceInfo


def print_preflight(found: PreflightInfo, console: Console) -> None:
    """Print the verdict, the measurements, each cause with its fix, and the worst tokens."""
    console.print(f"[bold]{_headline(found)}[/bold]", highlight=False, soft_wrap=True)
    console.print(_measurements(found))
    for line in _lines(found):
        console.print(escape(line), highlight=False, soft_wrap=True)
    if found.worst and not found.passed:
        console.print(worst_table(found.worst))


def _headline(found: PreflightInfo) -> str:
    compared = f"{found.tokens:,} tokens of {found.sequences:,} sequences"
    if found.passed:
        return f"equal within the limits ({compared})"
    return f"{', '.join(cause.cause.value for cause in found.causes)} ({compared})"


def _measurements(found: PreflightInfo) -> Table:
    limits, signals = found.limits, found.signals
    table = Table("measured", "value", "limit")
    bound = "" if found.tv_is == "exact" else " (lower bound)"
    table.add_row("equal log-probs", f"{found.equal_share:.2%}", f">= {limits.equal_share:.2%}")
    table.add_row("largest |d|", f"{found.max_abs_d:.3g} nats", f"<= {limits.max_abs_d:g}")
    table.add_row(f"95th percentile of token TV{bound}", f"{found.tv_p95:.3g}", f"<= {limits.tv_p95:g}")
    table.add_row("kl_k3", f"{signals['kl_k3']:.3g} nats", "")
    table.add_row("correlation of probabilities", f"{signals['prob_pearson']:.5f}", "")
    table.add_row("mean ratio", f"{signals['ratio_mean']:.4f}", "")
    table.add_row("temperature slope", f"{found.temperature_slope:.3g}", "")
    if found.trainer_mass_outside is not None and not math.isnan(found.trainer_mass_outside):
        table.add_row("trainer's mass outside the rollout's support", f"{found.trainer_mass_outside:.3g}", "")
    ids = "not compared: both engines must name them"
    if found.token_ids_compared:
        ids = f"{found.retokenised_sequences} sequences differ" if found.retokenised_sequences else "equal"
    table.add_row("token ids", ids, "")
    return table


def _lines(found: PreflightInfo) -> Iterator[str]:
    for cause in found.causes:
        yield from _cause_lines(cause)
    for lost in found.unknown:
        yield f"not known: {lost.finding.value} {lost.finding.title}"
        yield from (f"    {gap.signal}: {gap.provide}" for gap in lost.missing)


def _cause_lines(cause: CauseInfo) -> Iterator[str]:
    yield f"{cause.finding.value} {cause.cause.value}: {cause.detail}"
    yield from (f"    {line}" for line in _evidence(cause.evidence))
    yield f"  do: {cause.fix}"
    yield f"  if it persists: {cause.remedy.persists}"


def _evidence(evidence: Iterable[EvidenceInfo]) -> Iterator[str]:
    for item in evidence:
        if item.rules_out:
            continue
        if item.away_from is not None:
            yield f"{item.signal} is {item.value:.4g}, more than {item.threshold:g} from {item.away_from:g}"
        else:
            side = "above" if item.bound == ThresholdSide.ABOVE.value else "below"
            yield f"{item.signal} is {item.value:.4g}, {side} {item.threshold:g}"


def worst_table(worst: Iterable[WorstTokenInfo]) -> Table:
    """Return the tokens on which the engines differ most."""
    table = Table(
        "sequence", "position", "token id", "rollout", "trainer", "d", title="worst tokens", title_justify="left"
    )
    for token in worst:
        token_id = "-" if token.token_id is None else str(token.token_id)
        numbers = (f"{value:.4f}" for value in (token.rollout_logprob, token.trainer_logprob, token.d))
        table.add_row(str(token.sequence), str(token.position), token_id, *numbers)
    return table
