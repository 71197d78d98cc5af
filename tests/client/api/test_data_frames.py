"""Histories as tables of pandas, Polars and Arrow."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from trmon_client.api.signals import BandAnswer, SeriesAnswer, SignalHistory, compare_histories, join_series


def history(run: str = "math/grpo", *, steps: tuple[int, ...] = (4, 5, 6)) -> SignalHistory:
    """Return a history of two signals, of which the second is named as a position."""
    values = BandAnswer(last=[0.5, None, "inf"][: len(steps)])
    part = SeriesAnswer(
        exact=True,
        attempt_id=[1] * len(steps),
        step=list(steps),
        update=[None] * len(steps),
        closed_at=[float(step) for step in steps],
        count=[1] * len(steps),
        signals={"reward_mean": values, "step": values},
    )
    return join_series(run, ["reward_mean", "step"], [part])


COLUMNS = ["step", "attempt_id", "update", "closed_at", "count", "reward_mean", "step.last"]


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_history_is_a_table(library: str) -> None:
    table = getattr(history(), f"to_{library}")()
    columns = {name: np.asarray(table[name]) for name in COLUMNS}
    assert list(table.column_names if library == "arrow" else table.columns) == COLUMNS
    assert (columns["step"].tolist(), columns["update"].tolist()) == ([4, 5, 6], [-1] * 3)
    np.testing.assert_array_equal(columns["reward_mean"], [0.5, np.nan, np.inf])


def test_runs_side_by_side() -> None:
    found = compare_histories([history("math/a"), history("math/b", steps=(5, 9))]).to_pandas()
    assert found["step"].tolist() == [4, 5, 6, 9]
    np.testing.assert_array_equal(found["math/a reward_mean"], [0.5, np.nan, np.inf, np.nan])
    np.testing.assert_array_equal(found["math/b reward_mean"], [np.nan, 0.5, np.nan, np.nan])
    nothing = compare_histories([history(steps=())]).to_pandas()
    assert (len(nothing), list(nothing.columns)) == (0, ["step", "math/grpo reward_mean", "math/grpo step"])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_missing_library_is_named_with_how_to_install_it(library: str) -> None:
    method = "to_arrow" if library == "pyarrow" else f"to_{library}"
    code = f"""
import sys
sys.modules[{library!r}] = None
from trmon_client.api.signals import join_series
try:
    join_series("math/grpo", [], []).{method}()
except ImportError as error:
    print(error)
print(*({{"pandas", "polars", "pyarrow"}} & {{name for name in sys.modules if sys.modules[name]}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == f"{library} is not installed: pip install {library}\n\n"
