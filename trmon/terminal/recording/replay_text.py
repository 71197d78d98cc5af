"""Print a replay as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.terminal.recording.replay_schemas import RecordedTokenInfo, ReplayedUpdateInfo, ReplayInfo

SHOWN_CHARACTERS = 60
SIGNALS = ("kl_k1", "kl_k3", "prob_pearson", "abs_log_ratio_max")


def print_replay(found: ReplayInfo, console: Console) -> None:
    """Print the updates, whether the decisions are those of then, and the worst tokens."""
    table = Table("step", "update", "sequences", "rejected", "pair", *SIGNALS)
    for update in found.updates:
        table.add_row(*_update_cells(update))
    console.print(table)
    for note in dict.fromkeys(note for update in found.updates for note in update.notes):
        console.print(escape(f"not compared: {note}"), highlight=False, soft_wrap=True)
    if found.n_differing:
        console.print(f"[bold]{found.n_differing} sequences were decided otherwise[/bold]", highlight=False)
    if found.worst:
        console.print(_worst_table(found.worst))


def _update_cells(update: ReplayedUpdateInfo) -> list[str]:
    values = (update.signals.get(f"{update.primary}_{name}", math.nan) for name in SIGNALS)
    return [
        str(update.step),
        "-" if update.update is None else str(update.update),
        str(update.n_sequences),
        str(update.n_rejected),
        update.primary or "-",
        *("-" if math.isnan(value) else f"{value:.4g}" for value in values),
    ]


def _worst_table(worst: Sequence[RecordedTokenInfo]) -> Table:
    names = ("rank", "step", "update", "chunk", "sequence", "position", "token_id")
    table = Table(*(name.replace("_", " ") for name in names), "rollout", "trainer", "d", "text")
    table.title = "worst tokens"
    table.title_justify = "left"
    for token in worst:
        places = ("-" if (value := getattr(token, name)) is None else str(value) for name in names)
        numbers = (f"{value:.4f}" for value in (token.rollout_logprob, token.trainer_logprob, token.d))
        table.add_row(*places, *numbers, escape((token.text or "")[:SHOWN_CHARACTERS]))
    return table
