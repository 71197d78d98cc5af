"""The folder of pairs: finished ones are not missing, and one experiment's pairs are not mixed with another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.tests.interventions.pairs import NEVER, arm, plan, record
from tests.lab.grpo.experiments import small
from trmon.domain.errors import InvalidInput
from trmon_research.interventions.pair_folder import PairFolder


def test_a_stored_pair_is_one_line_and_is_not_missing(tmp_path: Path) -> None:
    folder, stored = PairFolder(tmp_path / "pairs"), record(arm("untouched"))
    other = plan(small(seed=9))
    assert folder.missing([stored.plan, other]) == [stored.plan, other]
    folder.store(stored)
    assert folder.missing([stored.plan, other]) == [other]
    assert list(folder.records()) == [stored]
    assert [len(path.read_bytes().splitlines()) for path in folder.path.iterdir()] == [1]


def test_pairs_of_another_trigger_are_refused(tmp_path: Path) -> None:
    folder, stored = PairFolder(tmp_path), record(arm("untouched"))
    folder.store(stored)
    with pytest.raises(InvalidInput, match="was run with other choices"):
        folder.missing([plan(stored.plan.config, trigger=NEVER)])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"bad\.json"):
        list(PairFolder(tmp_path).records())
