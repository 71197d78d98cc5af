"""Answers: numbers that JSON lacks, newer services, and histories as tables of pandas, Polars and Arrow."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.fixtures.command import run_python
from trmon_client.api import ApiNumber
from trmon_client.api.answers import decode_answer, encode_answer
from trmon_client.api.policies import ShareInfo
from trmon_client.api.signals import BandAnswer, SeriesAnswer, SignalHistory, compare_histories, join_series


def test_numbers_that_json_lacks_come_back() -> None:
    body = b'{"n_sequences":0,"mask_rate":null}'
    share = decode_answer(body, ShareInfo)
    assert share.mask_rate != share.mask_rate
    assert encode_answer(share) == body
    endless = decode_answer(b'{"n_sequences":1,"mask_rate":"-inf"}', ShareInfo)
    assert (endless.mask_rate, endless.mask_rate + 1) == (-float("inf"), -float("inf"))
    assert encode_answer(endless) == b'{"n_sequences":1,"mask_rate":"-inf"}'


def test_a_newer_service_may_answer_more_and_not_less() -> None:
    newer = b'{"n_sequences":2,"mask_rate":0.5,"median_length":7}'
    assert decode_answer(newer, ShareInfo) == ShareInfo(n_sequences=2, mask_rate=ApiNumber(0.5))
    with pytest.raises(ValueError, match="mask_rate"):
        decode_answer(b'{"n_sequences":2}', ShareInfo)


def test_half_a_surrogate_pair_is_written_as_a_question_mark() -> None:
    share = ShareInfo(n_sequences=2, mask_rate=ApiNumber("nan"))
    assert encode_answer({"log\udcff.jsonl": share, "of": "kl\ud800"}) == (
        b'{"log?.jsonl": {"n_sequences": 2, "mask_rate": null}, "of": "kl?"}'
    )


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
def test_a_missing_library_is_named_with_how_to_install_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"^{library} is not installed: pip install {library}$"):
        getattr(history(), "to_arrow" if library == "pyarrow" else f"to_{library}")()


def test_a_history_imports_no_library_of_tables() -> None:
    code = """
import sys
from trmon_client.api.signals import join_series
join_series("math/grpo", [], [])
print({"pandas", "polars", "pyarrow"} & {*sys.modules})
"""
    assert run_python(code).stdout == "set()\n"
