"""`trmon runbook`: print what to do about a run's problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.terminal.arguments import parse_run_name
from trmon.terminal.diagnosis_text import answers_lines
from trmon_client.api.answers import encode_answer
from trmon_client.api.diagnosis import RunbookStageInfo


def stage_lines(stages: Iterable[RunbookStageInfo]) -> Iterator[str]:
    """Yield the stages: each with its sentences, the options to set, and the commands to paste, indented."""
    for stage in stages:
        yield f"[bold]{stage.stage.capitalize()}[/bold]"
        yield from map(escape, stage.lines)
        yield from (escape(f"    {line}") for line in (*stage.options, *stage.commands))


def runbook_command(
    name: Annotated[str, typer.Argument(metavar="PROJECT/RUN|NAME", help="A run, or the name of a finding or rule.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what to do about a run's problem: confirm, rule out, mitigate, verify, with its values and commands.

    Of a finding or rule by its name, the same without a run's values.
    """
    with plain_errors(), service_of(url) as service:
        if "/" in name:
            found = service.runbook(str(parse_run_name(name)))
            told = (f"[bold]{escape(found.headline)}[/bold]", *stage_lines(found.stages))
            lines, answer = (*told, *map(escape, answers_lines(found.answers))), encode_answer(found)
        else:
            rule = next((one for one in service.rules() if one.name == name), None)
            if rule is None:
                raise InvalidInput("NAME", f"is no run, finding or rule: {name}")
            told = (f"[bold]{escape(rule.title.capitalize())}[/bold]", escape(rule.meaning))
            lines, answer = (*told, *stage_lines(rule.stages)), encode_answer(rule)
        if as_json:
            echo_json(msgspec.json.format(answer))
        else:
            for line in lines:
                console().print(line, highlight=False, soft_wrap=True)
