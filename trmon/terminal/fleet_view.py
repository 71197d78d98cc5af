"""What of the fleet is looked at: where it is scrolled to, and the filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trmon.terminal.styles import kind_words
from trmon_client.api import RunStatus

MAX_FILTER = 60


@dataclass(frozen=True, slots=True)
class FleetView:
    """The place of the first row, the words that rows must hold, and whether they are being typed."""

    first: int = 0
    words: str = ""
    is_typing: bool = False

    @property
    def is_filter(self) -> bool:
        """Whether a filter is shown, also one without words yet."""
        return bool(self.words) or self.is_typing

    def of(self, runs: Sequence[RunStatus]) -> list[RunStatus]:
        """Return the runs that hold every word in their name, owner, tags, state or verdict."""
        words = self.words.casefold().split()
        return [run for run in runs if all(word in _text(run) for word in words)]

    def after(self, key: str, *, n_rows: int, n_runs: int) -> FleetView | None:
        """Return what is looked at after a key, None to quit. Args: n_rows: that fit; n_runs: that match."""
        if self.is_typing and (len(key) == 1 or key in ("enter", "backspace", "escape")):
            return self._typed(key)
        if key in ("q", "Q"):
            return None
        if key == "/":
            return replace(self, is_typing=True)
        if key == "escape":
            return FleetView()
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -n_rows, "page down": n_rows, " ": n_rows}
        to = {"home": 0, "end": n_runs}.get(key, self.first + moves.get(key, 0))
        return replace(self, first=max(min(to, n_runs - n_rows), 0))

    def _typed(self, key: str) -> FleetView:
        if key == "enter":
            return replace(self, is_typing=False)
        if key == "escape":
            return FleetView()
        words = self.words[:-1] if key == "backspace" else (self.words + key)[:MAX_FILTER]
        return FleetView(words=words, is_typing=True)


def _text(run: RunStatus) -> str:
    told = (run.name, run.owner or "", *run.tags, run.state, kind_words(run.verdict.kind), run.verdict.why)
    return " ".join(told).casefold()
