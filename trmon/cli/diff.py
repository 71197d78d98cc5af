"""`trmon diff`: compare runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import Annotated, Literal

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.health.judgement import verdict_words
from trmon.domain.identity import RunKey
from trmon.terminal.text import PIPE_WIDTH, cut_middle, kind_words, print_lines
from trmon_client.api.answers import encode_answer
from trmon_client.api.comparison import ComparedRun, ComparisonInfo

NAME_WIDTH = 24
LEAST_WIDTH = 6
GAP = "  "


def comparison_lines(found: ComparisonInfo, *, width: int) -> Iterator[str]:
    """Yield the runs with their verdicts, where they part, and what differs; what does not fit loses its middle.

    Args: width: of the terminal; PIPE_WIDTH without one.
    """
    for letter, run in zip(ascii_uppercase, found.runs, strict=False):
        yield cut_middle(f"{letter}  {run.fleet.project}/{run.fleet.run}", width)
        yield f"   {verdict_words(kind_words(run.fleet.verdict.kind), run.fleet.verdict.why)}"
    if found.proposed:
        yield "B is the sound run of the project whose configuration differs least."
    for letter, run in list(zip(ascii_uppercase, found.runs, strict=False))[1:]:
        yield f"A and {letter}: {run.sentence}"
    yield ""
    rows = [("", ascii_uppercase[: len(found.runs)]), *_rows(found)]
    name_width, room = NAME_WIDTH, max((width - NAME_WIDTH) // len(found.runs) - len(GAP), LEAST_WIDTH)
    if width >= PIPE_WIDTH:
        name_width = max(len(name) for name, _ in rows)
        room = max(len(value) for _, values in rows for value in values)
    for name, values in rows:
        cells = (cut_middle(value, room).ljust(room) for value in values)
        yield f"{cut_middle(name, name_width).ljust(name_width)}{GAP}{GAP.join(cells)}".rstrip()
    if not found.config:
        yield "The configurations do not differ."


def _rows(found: ComparisonInfo) -> Iterator[tuple[str, Sequence[str]]]:
    yield "newest step", ["-" if run.fleet.step is None else str(run.fleet.step) for run in found.runs]
    yield "policy", [run.policy.name for run in found.runs]
    if not found.same_policy:
        yield "policy hash", [run.policy.hash for run in found.runs]
    for name in dict.fromkeys(name for run in found.runs for name in run.signals):
        yield name, [_newest(run, name) for run in found.runs]
    for entry in found.config:
        given = zip(entry.values, entry.given, strict=True)
        yield entry.name, [json.dumps(value) if is_given else "-" for value, is_given in given]


def _newest(run: ComparedRun, name: str) -> str:
    known = [value for value in run.signals.get(name, ()) if not math.isnan(value)]
    return f"{known[-1]:.4g}" if known else "-"


def diff_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="PROJECT/RUN...", help="2 to 8 runs; a single one is compared with a sound sibling."),
    ],
    by: Annotated[
        Literal["step", "time"], typer.Option(help="Align by step, or by the time since the start.")
    ] = "step",
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Print where runs part, in which signal first, and how their verdicts, policies and configurations differ."""
    with plain_errors(), service_of(url) as service:
        found = service.diff([str(RunKey.parse(run)) for run in runs], by=by)
        if as_json:
            echo_json(encode_answer(found))
        else:
            terminal = console()
            print_lines(terminal, comparison_lines(found, width=terminal.width))
