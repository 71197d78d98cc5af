"""`trmon replay`: compute a recording again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from trmon.cli.command import console, plain_errors, unusable_input
from trmon.domain.recording import replay_recording
from trmon.terminal.recording.recording_files import read_recordings
from trmon.terminal.recording.replay_schemas import replay_info
from trmon.terminal.recording.replay_text import print_replay
from trmon_client.api.answers import encode_answer


def replay_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A recording, or a folder with those of one run.", exists=True)
    ],
    step: Annotated[int | None, typer.Option(min=0, help="Only the calls of this step.")] = None,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst tokens to name.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the signals, decisions and worst tokens of a trainer's recording again.

    Exits with 1 if a sequence was decided otherwise than recorded, 2 if the recording cannot be read.
    """
    with plain_errors(), unusable_input():
        found = replay_info(replay_recording(read_recordings(directory, step=step), n_worst=worst))
        if as_json:
            typer.echo(msgspec.json.format(encode_answer(found)))
        else:
            print_replay(found, console())
        sys.exit(1 if found.n_differing else 0)
