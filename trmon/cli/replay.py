"""`trmon replay`: compute a recording again."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.cli.command import console, plain_errors, unusable_input
from trmon.domain.errors import InvalidInput
from trmon.domain.recording import (
    RecordedSequence,
    RecordedToken,
    RecordedTokens,
    Replay,
    ReplayedUpdate,
    SequenceOrder,
    replay_recording,
    worst_sequences,
)
from trmon.terminal.array_files import read_arrays
from trmon.terminal.text import print_lines
from trmon_client.core.recording_format import ARRAYS, FORMAT_VERSION, INDEX_FILE, RecordedCall, Recording


def read_recordings(directory: Path, *, first: int = 0, last: int | None = None) -> list[RecordedTokens]:
    """Return the calls of all recordings in a folder and below, each once; of two recordings the newer one has it.

    Args: first, last: only the calls of these steps, both included; last: None for no end.
    Errors: InvalidInput if there is no recording, or one cannot be read.
    """
    indexes = [path for path in sorted(directory.rglob(INDEX_FILE)) if not path.parent.name.endswith(".partial")]
    if not indexes:
        raise InvalidInput(str(directory), f"has no recording ({INDEX_FILE})")
    recordings = sorted(((_read_index(path), path.parent) for path in indexes), key=lambda pair: pair[0].written_at)
    _check_one_run(directory, [recording for recording, _ in recordings])
    found: dict[tuple[int, int, int | None, int], tuple[Recording, RecordedCall, Path]] = {}
    for recording, folder in recordings:
        for call in recording.calls:
            if call.step >= first and (last is None or call.step <= last):
                found[recording.rank, call.step, call.update, call.chunk] = recording, call, folder
    return [
        RecordedTokens(
            rank=recording.rank,
            call=call,
            arrays=read_arrays(folder / call.file, names=ARRAYS),
            semantics=recording.semantics,
        )
        for recording, call, folder in found.values()
    ]


def _read_index(path: Path) -> Recording:
    try:
        recording = msgspec.json.decode(path.read_bytes(), type=Recording)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error
    if recording.format != FORMAT_VERSION:
        raise InvalidInput(str(path), f"has format {recording.format}; this version reads {FORMAT_VERSION}")
    if any(Path(call.file).name != call.file for call in recording.calls):
        raise InvalidInput(str(path), "names a file outside its folder")
    return recording


def _check_one_run(directory: Path, recordings: list[Recording]) -> None:
    runs = sorted({f"{recording.project}/{recording.run}" for recording in recordings})
    if len(runs) > 1:
        raise InvalidInput(str(directory), f"has recordings of {', '.join(runs)}; name the folder of one run")


SHOWN_CHARACTERS = 60
SIGNALS = ("kl_k1", "kl_k3", "prob_pearson", "abs_log_ratio_max")


def print_replay(found: Replay, console: Console) -> None:
    """Print the updates, whether the decisions are those of then, and the worst tokens."""
    table = Table("step", "update", "sequences", "rejected", "pair", *SIGNALS)
    for update in found.updates:
        table.add_row(*_update_cells(update))
    console.print(table)
    notes = dict.fromkeys(note for update in found.updates for note in update.notes)
    print_lines(console, (f"not compared: {note}" for note in notes))
    if found.n_differing:
        console.print(f"[bold]{found.n_differing} sequences were decided otherwise[/bold]", highlight=False)
    if found.worst:
        console.print(_worst_table(found.worst))


def _update_cells(update: ReplayedUpdate) -> list[str]:
    primary = update.columns.primary
    values = (update.signals.get(f"{primary}_{name}", math.nan) for name in SIGNALS)
    return [
        str(update.step),
        "-" if update.update is None else str(update.update),
        str(update.n_sequences),
        str(update.n_rejected),
        primary or "-",
        *("-" if math.isnan(value) else f"{value:.4g}" for value in values),
    ]


def _sequence_lines(sequences: Sequence[RecordedSequence]) -> Iterator[str]:
    """Yield each sequence with its place and its numbers, and its text, if that was recorded."""
    for one in sequences:
        update = "" if one.update is None else f", update {one.update}"
        numbers = {"mean |d|": one.mean_abs_d, "reward": one.reward, "tokens": one.n_tokens}
        known = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if not math.isnan(value))
        decided = "in the loss" if one.accepted else "rejected"
        place = f"step {one.step}{update}, rank {one.rank}, chunk {one.chunk}, sequence {one.sequence}"
        yield f"{place}: {known}, {decided}"
        yield from (f"    {line}" for line in (one.text or "").splitlines())
    if not all(one.text for one in sequences):
        yield "The other texts are not recorded: TRMON_RECORD_TEXTS=1 keeps three of each call."


def _worst_table(worst: Sequence[RecordedToken]) -> Table:
    places = ("rank", "step", "update", "chunk", "sequence", "position", "token id")
    table = Table(*places, "rollout", "trainer", "d", "text")
    table.title = "worst tokens"
    table.title_justify = "left"
    for one in worst:
        token = one.token
        at = (one.rank, one.step, one.update, one.chunk, token.sequence, token.position, token.token_id)
        numbers = (f"{value:.4f}" for value in (token.rollout_logprob, token.trainer_logprob, token.d))
        cells = ("-" if value is None else str(value) for value in at)
        table.add_row(*cells, *numbers, escape((one.text or "")[:SHOWN_CHARACTERS]))
    return table


def replay_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A recording, or a folder with those of one run.", exists=True)
    ],
    step: Annotated[int | None, typer.Option(min=0, help="Only the calls of this step.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="The first step.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="The last step.")] = None,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst tokens to name.")] = 20,
    sequences: Annotated[
        int, typer.Option(min=0, help="Show so many of the worst sequences instead, with their texts if recorded.")
    ] = 0,
    by: Annotated[
        SequenceOrder, typer.Option(help="The worst sequences: drift, the least reward, or the most tokens.")
    ] = SequenceOrder.DRIFT,
) -> None:
    """Compute the signals, decisions and worst tokens of a trainer's recording again.

    Exits with 1 if a sequence was decided otherwise than recorded, 2 if the recording cannot be read.
    """
    with plain_errors(), unusable_input():
        first, last = (first, last) if step is None else (step, step)
        found = replay_recording(read_recordings(directory, first=first, last=last), n_worst=worst)
        if shown := worst_sequences(found.updates, by=by, n=sequences):
            print_lines(console(), _sequence_lines(shown))
        else:
            print_replay(found, console())
        sys.exit(1 if found.n_differing else 0)
