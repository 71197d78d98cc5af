"""Arguments that several tools take, with what the model is told of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trmon.terminal.arguments import parse_run_name

RunName = Annotated[str, Field(description="The run as PROJECT/RUN, as list_runs names it.", max_length=300)]
FromStep = Annotated[int | None, Field(ge=0, description="The first step; by default the first of the run.")]
ToStep = Annotated[int | None, Field(ge=0, description="The last step; by default the newest.")]


def checked_run(run: str) -> str:
    """Return a run's name if it is one. Errors: InvalidInput that says where names are listed."""
    return str(parse_run_name(run, otherwise="; list_runs names the runs"))
