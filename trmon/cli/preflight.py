"""`trmon preflight`: compare the rollout engine with the trainer before a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from trmon.cli.command import console, echo_json, plain_errors, unusable_input
from trmon.domain.analysis.distribution import WorstToken
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.sentences import evidence_words, words_of_signal
from trmon.domain.preflight.causes import (
    ENOUGH_TOKENS,
    N_WORST,
    FoundCause,
    PreflightLimits,
    PreflightResult,
    preflight,
)
from trmon.terminal.completions_endpoint import CompletionsEndpoint
from trmon.terminal.preflight_scores import is_endpoint, read_scores
from trmon.terminal.text import print_lines
from trmon_client.api.answers import ApiNumber, encode_answer
from trmon_client.api.diagnosis import EvidenceInfo, OutOfRangeInfo, RemedyInfo


def preflight_document(found: PreflightResult) -> dict[str, Any]:
    """Return what `--json` prints of a result; NaN becomes null."""
    alignment = found.alignment
    measured = {name: value for name, value in _fields(found).items() if name not in ("alignment", "counts")}
    return {
        "passed": found.passed,
        **measured,
        "signals": {name: ApiNumber(value) for name, value in found.signals.items()},
        "token_ids_compared": alignment.n_retokenised is not None,
        "retokenised_sequences": alignment.n_retokenised,
        "first_id_difference": alignment.first_difference,
        "padding_rollout_only": alignment.rollout_only,
        "padding_trainer_only": alignment.trainer_only,
        "shift": alignment.shift,
        **_fields(found.counts),
        "limits": _fields(found.limits),
        "causes": [_cause(cause) for cause in found.causes],
        "worst": [_fields(token) for token in found.worst],
    }


def _cause(found: FoundCause) -> dict[str, Any]:
    return _fields(found) | {
        "fix": found.fix,
        "evidence": [EvidenceInfo.from_fields(item, words=evidence_words(item)) for item in found.evidence],
        "outside": [OutOfRangeInfo.from_fields(out, words=words_of_signal(out.signal)) for out in found.outside],
        "remedy": RemedyInfo.from_fields(found.remedy),
    }


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, numbers as answers write them."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: ApiNumber(one) if isinstance(one, float) else one for name, one in given.items()}


def print_preflight(found: PreflightResult, console: Console) -> None:
    """Print the verdict, the measurements, each cause with its fix, and the worst tokens."""
    console.print(f"[bold]{_headline(found)}[/bold]", highlight=False, soft_wrap=True)
    console.print(_measurements(found))
    print_lines(console, _lines(found))
    if found.worst and not found.passed:
        console.print(worst_table(found.worst))


def _headline(found: PreflightResult) -> str:
    compared = f"{found.tokens:,} tokens of {found.sequences:,} sequences"
    if found.passed:
        return f"equal within the limits ({compared})"
    return f"{', '.join(cause.cause.value for cause in found.causes)} ({compared})"


def _measurements(found: PreflightResult) -> Table:
    limits, signals = found.limits, found.signals
    table = Table("measured", "value", "limit")
    bound = "" if found.tv_is == "exact" else " (lower bound)"
    table.add_row("equal log-probs", f"{found.equal_share:.2%}", f">= {limits.equal_share:.2%}")
    table.add_row("largest |d|", f"{found.max_abs_d:.3g} nats", f"<= {limits.max_abs_d:g}")
    table.add_row(f"95th percentile of token TV{bound}", f"{found.tv_p95:.3g}", f"<= {limits.tv_p95:g}")
    table.add_row("kl_k3", f"{signals['kl_k3']:.3g} nats", "")
    table.add_row("correlation of probabilities", f"{signals['prob_pearson']:.5f}", "")
    table.add_row("mean ratio", f"{signals['ratio_mean']:.4f}", "")
    table.add_row("slope of d over the rollout's log-prob", f"{signals['logp_slope_q']:.3g}", "")
    if found.trainer_mass_outside is not None and not math.isnan(found.trainer_mass_outside):
        table.add_row("trainer's mass outside the rollout's support", f"{found.trainer_mass_outside:.3g}", "")
    ids = "not compared: both engines must name them"
    if found.alignment.n_retokenised is not None:
        ids = f"{found.alignment.n_retokenised} sequences differ" if found.alignment.n_retokenised else "equal"
    table.add_row("token ids", ids, "")
    return table


def _lines(found: PreflightResult) -> Iterator[str]:
    for cause in found.causes:
        yield f"{cause.cause.value}: {cause.detail} (in a run: {cause.finding})"
        yield from (f"    {evidence_words(item)}" for item in cause.evidence)
        yield from (
            f"    {words_of_signal(out.signal)} is {out.value:.3g} (healthy {out.range})" for out in cause.outside
        )
        yield f"  do: {cause.fix}"
        if cause.remedy.then:
            yield f"  if it persists: {cause.remedy.then}"
    if found.unknown:
        titles = ", ".join(builtin_catalogue().by_id[finding].title for finding in found.unknown)
        yield f"not known: {titles} (compare {ENOUGH_TOKENS:,} tokens of 20 sequences or more)"


def worst_table(worst: Iterable[WorstToken]) -> Table:
    """Return the tokens on which the engines differ most."""
    table = Table(
        "sequence", "position", "token id", "rollout", "trainer", "d", title="worst tokens", title_justify="left"
    )
    for token in worst:
        token_id = "-" if token.token_id is None else str(token.token_id)
        numbers = (f"{value:.4f}" for value in (token.rollout_logprob, token.trainer_logprob, token.d))
        table.add_row(str(token.sequence), str(token.position), token_id, *numbers)
    return table


DEFAULTS = PreflightLimits()


def preflight_command(
    rollout: Annotated[
        str,
        typer.Argument(help="The rollout's log-probs: a .npz or .jsonl file, module:function, or an OpenAI URL."),
    ],
    trainer: Annotated[
        str | None,
        typer.Argument(help="The trainer's, likewise; left out, the first file has both engines."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="The sequences that functions score; default: those of the other source."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The endpoint's model; default: the first it lists.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="The endpoint's key.", show_envvar=True)
    ] = None,
    max_abs_d: Annotated[float, typer.Option(min=0, help="Largest |d| that passes, nats.")] = DEFAULTS.max_abs_d,
    max_tv: Annotated[
        float, typer.Option(min=0, max=1, help="Largest 95th percentile of token TV that passes.")
    ] = DEFAULTS.tv_p95,
    min_equal: Annotated[
        float, typer.Option(min=0, max=1, help="Least share of equal log-probs that passes; 1 asks for equal bits.")
    ] = DEFAULTS.equal_share,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst tokens to name.")] = N_WORST,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that rollout engine and trainer give the same tokens the same log-probs at equal weights; name the cause.

    Exits with 0 if they are equal within the limits, 1 if a cause was found, 2 if the input cannot be read.
    """
    with plain_errors(), unusable_input():
        limits = PreflightLimits(max_abs_d=max_abs_d, tv_p95=max_tv, equal_share=min_equal)
        source = CompletionsEndpoint(url=rollout, model=model, api_key=api_key) if is_endpoint(rollout) else rollout
        found = preflight(*read_scores(source, trainer, tokens=tokens), limits=limits, n_worst=worst)
        if as_json:
            echo_json(msgspec.json.format(encode_answer(preflight_document(found))))
        else:
            print_preflight(found, console())
        sys.exit(0 if found.passed else 1)
