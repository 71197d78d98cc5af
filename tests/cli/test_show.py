"""The table of a run's signals fits a terminal: numbers are whole, and names lose their middle, not their ends."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from trmon.cli.show import signal_course_table
from trmon.terminal.text import cut_middle
from trmon_client.api import SignalBand, SignalHistory

VALUES = np.array([12345.678, -0.000748391, -1.23456e-05])
NAMES = ("reward_mean", "staleness_abs_log_ratio_max", "mismatch_abs_log_ratio_max", "mismatch_kl_k3")


def drawn(width: int) -> list[str]:
    """Return the lines of the table of four signals."""
    band = SignalBand(last=VALUES, mean=VALUES, min=VALUES, max=VALUES)
    history = SignalHistory(
        run="math/grpo",
        exact=True,
        **dict.fromkeys(("step", "attempt_id", "update", "closed_at", "count"), np.arange(3)),
        bands=dict.fromkeys(NAMES, band),
    )
    text = io.StringIO()
    console = Console(file=text, width=width)
    console.print(signal_course_table(history, NAMES, told=frozenset(), console=console))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_numbers_are_whole_and_no_line_is_wrapped(width: int) -> None:
    lines = [line for line in drawn(width) if re.search(r"e-05", line)]
    assert len(lines) == len(NAMES)
    assert all(re.search(r"-0\.000748\d? +1\.23\d?e\+04", line) for line in lines)
    assert not any("…" in line for line in lines[2:])
    assert "staleness_ab" in lines[1]
    assert "ratio_max" in lines[1]


@settings(max_examples=50)
@given(text=st.text(max_size=40), width=st.integers(0, 50))
def test_cut_text_has_at_most_the_width_and_keeps_both_ends(text: str, width: int) -> None:
    cut = cut_middle(text, width)
    assert len(cut) <= max(width, 0) or cut == text
    assert cut == text if len(text) <= width else len(cut) == width
    if 3 <= width < len(text):
        assert (cut[0], cut[-1]) == (text[0], text[-1])
