"""Tables of metric names: each name stands for a signal of ours."""

from __future__ import annotations

import pytest

from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import FRAMEWORKS, SCALARS, translate
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS

EACH_TABLE = pytest.mark.parametrize("table", FRAMEWORKS, ids=lambda table: table.framework)


@EACH_TABLE
def test_every_name_stands_for_a_signal_of_ours(table: MetricTable) -> None:
    assert set(table.signals.values()) <= SIGNALS.keys() | DERIVED.keys() | set(SCALARS)
    assert not table.signals.keys() & table.excluded.keys()
    assert table.linear.keys() <= table.signals.keys()


@EACH_TABLE
def test_a_table_says_of_which_release_and_files_it_is(table: MetricTable) -> None:
    assert table.version[0].isdigit()
    assert table.files
    assert all(file.endswith(".py") for file in table.files)


@EACH_TABLE
def test_a_log_with_all_names_of_a_framework_is_recognised_as_its(table: MetricTable) -> None:
    line = translate(dict.fromkeys(table.signals, 0.5))
    assert line.framework == table.framework
    assert set(line.signals) == set(table.signals.values())


def test_frameworks_have_the_loss_the_gradient_and_the_reward() -> None:
    for table in FRAMEWORKS:
        assert {"loss", "grad_norm", "reward_mean", "lr", "entropy"} <= set(table.signals.values()), table.framework
