"""Differences of configurations, entry by entry."""

from __future__ import annotations

from trmon.domain.comparison import ConfigDifference, compare_configs


def test_only_entries_that_differ_are_listed_with_dotted_names() -> None:
    first = {"lr": 1e-6, "actor": {"epochs": 1, "clip": 0.2}, "same": [1, 2]}
    second = {"lr": 1e-6, "actor": {"epochs": 4, "clip": 0.2}, "same": [1, 2], "tag": None}
    assert compare_configs([first, second]) == [
        ConfigDifference("actor.epochs", (1, 4), (True, True)),
        ConfigDifference("tag", (None, None), (False, True)),
    ]


def test_one_of_many_that_differs_is_enough() -> None:
    [found] = compare_configs([{"lr": 1}, {"lr": 1}, {"lr": 2}])
    assert found.values == (1, 1, 2)


def test_equal_and_empty_configurations_do_not_differ() -> None:
    assert compare_configs([{}, {}]) == []
    assert compare_configs([{"a": {"b": 1}}, {"a": {"b": 1}}]) == []
