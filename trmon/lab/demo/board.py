"""The demo's live table: both runs with their newest signals and firing alerts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trmon.lab.demo.readings import RunReading

HEADERS = ("run", "step", "", "reward", "kl_k3", "chi2", "ESS", "mask rate", "threshold", "alerts")
PLAIN_EVERY_STEPS = 20


class Board:
    """Displays readings: a live table in a terminal, otherwise one line per run every 20 steps."""

    def __init__(self, console: Console, *, n_steps: int) -> None:
        self._console = console
        self._n_steps = n_steps
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._printed: dict[str, int] = {}

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, readings: Mapping[str, RunReading], *, seconds: float) -> None:
        """Display the newest readings, by run."""
        if self._live:
            self._live.update(self._table(readings, seconds=seconds), refresh=True)
        else:
            for run, reading in readings.items():
                done, before = reading.steps[-1] + 1 if reading.steps else 0, self._printed.get(run, 0)
                if done > before and done >= min(before + PLAIN_EVERY_STEPS, self._n_steps):
                    self._printed[run] = done
                    self._print(run, reading, done=done)

    def _table(self, readings: Mapping[str, RunReading], *, seconds: float) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for header in HEADERS:
            table.add_column(header, justify="left" if header in ("run", "", "threshold", "alerts") else "right")
        for run, reading in readings.items():
            done = reading.steps[-1] + 1 if reading.steps else 0
            bar = ProgressBar(total=self._n_steps, completed=done, width=16)
            cells = [Text(text) for text in _numbers(reading)]
            threshold = Text(reading.threshold, style="dim")
            table.add_row(Text(run, style="bold"), str(done), bar, *cells, threshold, _alerts(reading))
        return Group(table, Text(f"{seconds:.0f} s", style="dim"))

    def _print(self, run: str, reading: RunReading, *, done: int) -> None:
        reward, kl, chi2, ess, mask_rate = _numbers(reading)
        state = "finished" if reading.state == "finished" else f"alerts {', '.join(reading.firing) or 'none'}"
        self._console.print(
            f"{run:<10} step {done:>3}/{self._n_steps}  reward {reward}  kl_k3 {kl}  chi2 {chi2}  ESS {ess}  "
            f"mask rate {mask_rate}  {state}",
            highlight=False,
            soft_wrap=True,
        )


def _alerts(reading: RunReading) -> Text:
    if not reading.steps:
        return Text("warming up", style="dim")
    if reading.state == "finished":
        return Text("finished", style="dim")
    return Text(", ".join(reading.firing) or "none", style="bold red" if reading.firing else "green")


def _numbers(reading: RunReading) -> list[str]:
    """Return reward, kl_k3, chi2, ESS and mask rate as text, in the order of the headers."""
    formats = (
        ("reward_mean", "{:.3f}"),
        ("mismatch_kl_k3", "{:.5f}"),
        ("mismatch_chi2_token", "{:z.3f}"),
        ("mismatch_ess_token", "{:.3f}"),
        ("mask_rate", "{:.0%}"),
    )
    return ["-" if math.isnan(value := reading.last(name)) else form.format(value) for name, form in formats]
