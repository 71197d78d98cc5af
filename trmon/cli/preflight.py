"""`trmon preflight`: compare the rollout engine with the trainer before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from trmon.cli.command import console, echo_json, plain_errors, unusable_input
from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.preflight import N_WORST, PreflightLimits, preflight
from trmon.terminal.preflight.completions_endpoint import CompletionsEndpoint, Sampling
from trmon.terminal.preflight.preflight_schemas import preflight_info
from trmon.terminal.preflight.preflight_text import print_preflight
from trmon.terminal.preflight.score_sources import is_endpoint, read_scores
from trmon_client.api.answers import encode_answer

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
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="TOKENS", help="Have the endpoint sample responses of so many tokens at most."),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="Temperature of --sample.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Nucleus of --sample.")] = 1.0,
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
        sampling = None if sample is None else Sampling(max_tokens=sample, temperature=temperature, top_p=top_p)
        if sampling is not None and not is_endpoint(rollout):
            raise InvalidInput("--sample", "is for an endpoint")
        source = (
            CompletionsEndpoint(url=rollout, model=model, api_key=api_key, sampling=sampling)
            if is_endpoint(rollout)
            else rollout
        )
        sides = read_scores(source, trainer, tokens=tokens)
        found = preflight_info(preflight(*sides, limits=limits, n_worst=worst))
        if as_json:
            echo_json(msgspec.json.format(encode_answer(found)))
        else:
            print_preflight(found, console())
        sys.exit(0 if found.passed else 1)
