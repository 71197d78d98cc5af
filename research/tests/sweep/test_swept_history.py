"""Files of a sweep as histories: two rows a step, a label, no clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.tests.sweep.sweep_files import write_sweep_file
from trmon.domain.errors import InvalidInput
from trmon_client.core.policies.policy import preset
from trmon_research.sweep.swept_history import swept_histories

pytest.importorskip("pyarrow")


def test_a_step_has_the_row_of_its_rollout_and_that_of_its_last_update(tmp_path: Path) -> None:
    write_sweep_file(tmp_path, "ill", rewards=[0.5, 0.25], onset=1)
    [swept] = swept_histories(tmp_path, runs=[])
    rows = list(swept.history.rows())
    assert [(row.key.step, row.key.update, row.ordinal) for row in rows] == [
        (0, None, 1),
        (0, 0, 2),
        (1, None, 3),
        (1, 0, 4),
    ]
    assert rows[2].signals == {"reward_mean": 0.25, "response_length_mean": 4.0, "mismatch_kl_k3": 1.0}
    assert (rows[2].scalars, rows[2].n_sequences, rows[2].n_tokens) == ({"grad_norm": 1.0}, 96, 384)
    assert rows[3].signals == {"staleness_kl_k3": 0.5}
    assert (swept.history.name, swept.onset) == ("sweep/ill", 1)
    assert swept.history.apply_policy(preset("geo_mask")).skipped == "files of a sweep hold no sequences"


def test_runs_are_chosen_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_sweep_file(tmp_path, name, rewards=[0.5], onset=None)
    assert [swept.history.name for swept in swept_histories(tmp_path, runs=["sweep/b"])] == ["sweep/b"]
    with pytest.raises(InvalidInput, match="'sweep/c' is not in"):
        list(swept_histories(tmp_path, runs=["sweep/c"]))


def test_a_file_that_no_sweep_wrote_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInput, match=r"cannot read .*other\.parquet"):
        list(swept_histories(tmp_path, runs=[]))
