"""Tables of metric names: each name stands for a signal of ours."""

from __future__ import annotations

import pytest

from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import FRAMEWORKS, SCALARS, translate
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS

PARTIAL = ("Marin", "OpenRLHF", "LightRFT", "tinker", "torchforge")
"""Frameworks that do not log all of them, or not under a name of their own."""
EACH_TABLE = pytest.mark.parametrize("table", FRAMEWORKS, ids=lambda table: table.framework)


@EACH_TABLE
def test_every_name_stands_for_a_signal_of_ours(table: MetricTable) -> None:
    assert {meaning.signal for meaning in table.signals.values()} <= SIGNALS.keys() | DERIVED.keys() | set(SCALARS)
    assert not table.signals.keys() & table.left_out.keys()


@EACH_TABLE
def test_a_table_says_of_which_release_and_files_it_is(table: MetricTable) -> None:
    assert table.files
    for version, files in table.files.items():
        assert any(map(str.isdigit, version))
        assert files


@EACH_TABLE
def test_a_log_with_all_names_of_a_framework_is_recognised_as_its(table: MetricTable) -> None:
    parts = [name for meaning in table.signals.values() for name in meaning.share_of]
    names = [name.replace("*", "1") for name in (*table.signals, *table.left_out, *table.steps, *parts)]
    line = translate(dict.fromkeys(names, 0.5))
    assert line.framework == table.framework
    assert set(line.signals) == {meaning.signal for meaning in table.signals.values()}


def test_frameworks_have_the_loss_the_gradient_and_the_reward() -> None:
    for table in FRAMEWORKS:
        if table.framework not in PARTIAL:
            read = {meaning.signal for meaning in table.signals.values()}
            assert {"loss", "grad_norm", "reward_mean", "lr", "entropy"} <= read, table.framework
