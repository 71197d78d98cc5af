"""Tables of metric names: each name stands for a signal of ours."""

from __future__ import annotations

import pytest

from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import FRAMEWORKS, HOME_MADE_NAMES, SCALARS, translate, trmon_name
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


def test_no_framework_is_told_the_option_of_its_base() -> None:
    options = {table.framework: table.agreement for table in FRAMEWORKS}
    assert options["verl"] == options["rLLM"] != ""  # rLLM trains with verl and takes its options
    assert {options[name] for name in ("ROLL", "EasyR1", "Search-R1", "open-instruct", "LLaMA-Factory")} == {""}


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


def test_a_name_is_read_without_its_framework_only_as_all_frameworks_mean_it() -> None:
    for name in sorted({name for table in FRAMEWORKS for name in table.signals if "*" not in name}):
        knowing = [table for table in FRAMEWORKS if name in {*table.signals, *table.left_out}]
        bases = {table.framework for table in knowing}
        meanings = {table.signals.get(name) for table in knowing if table.base not in bases}
        line = translate({name: 0.5}, table=None)
        is_decided = trmon_name(name) is not None or HOME_MADE_NAMES.name_in_table(name) is not None
        if not is_decided and len(meanings) > 1:
            assert line.signals == {}, name
            assert "depends on the framework: " in line.ignored[0].why
        elif not is_decided:
            assert set(line.signals) <= {meaning.signal for meaning in meanings if meaning is not None}, name
