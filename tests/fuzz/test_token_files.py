"""No file of scores or recording breaks `trmon preflight` or `trmon replay`: it is refused with a reason, or read."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.fuzzing import PLAIN_VALUES, edited, edited_document
from trmon.cli.replay import read_recordings
from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.causes import preflight
from trmon.domain.recording import replay_recording
from trmon.terminal.preflight_scores import ScoreFile
from trmon_client.core import acceptance
from trmon_client.core.recording_format import INDEX_FILE

pytestmark = pytest.mark.fuzz

ROW: dict[str, Any] = {"rollout_logprobs": [-1.0, -2.0], "old_logprobs": [-1.1, -2.0], "mask": [1, 1]}
ROWS = st.lists(
    edited_document(st.just(ROW), leaves=PLAIN_VALUES) | st.just(ROW) | PLAIN_VALUES, min_size=1, max_size=4
)
CALL = {
    "file": "a.npz",
    "step": 1,
    "update": None,
    "chunk": 0,
    "mode": "observe",
    "policy": acceptance.preset("trm_max").spec(),
    "kl_is": "sampled",
}
INDEX = {"project": "p", "run": "r", "rank": 0, "world_size": 1, "reason": "incident", "written_at": 1.0}
INDEX |= {"client_version": "0", "calls": [CALL], "format": 1, "semantics": 2}


def archive() -> bytes:
    file = io.BytesIO()
    ones = np.ones((2, 3))
    np.savez(file, rollout_logprobs=-ones, old_logprobs=-1.1 * ones, mask=ones > 0, accepted=np.ones(2, bool))
    return file.getvalue()


def compare(name: str, content: bytes) -> None:
    """Compare the two engines of a file, which may be refused."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with suppress(InvalidInput):
            file = ScoreFile(path)
            preflight(file.rollout(), file.trainer())


@given(ROWS)
def test_lines_are_refused_or_compared(rows: list[Any]) -> None:
    compare("a.jsonl", "\n".join(map(json.dumps, rows)).encode())


@given(edited(st.just(archive())))
def test_an_archive_is_refused_or_compared(content: bytes) -> None:
    compare("a.npz", content)


@given(edited_document(st.just(INDEX), leaves=PLAIN_VALUES), edited(st.just(archive())) | st.just(archive()))
def test_a_recording_is_refused_or_replayed(index: Any, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        Path(folder, INDEX_FILE).write_text(json.dumps(index))
        Path(folder, "a.npz").write_bytes(content)
        with suppress(InvalidInput):
            replay_recording(read_recordings(Path(folder)), n_worst=3)
