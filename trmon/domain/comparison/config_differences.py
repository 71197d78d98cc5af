"""How the configurations of runs differ, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """An entry by its dotted name, with its value in each run; `given` says which runs have it at all."""

    name: str
    values: tuple[Any, ...]
    given: tuple[bool, ...]


def config_differences(configs: Sequence[Mapping[str, Any]]) -> list[ConfigDifference]:
    """Return the entries that are not the same in all configurations, by name; nested ones have dotted names."""
    flat = [dict(_entries(config)) for config in configs]
    names = sorted({name for one in flat for name in one})
    found = [
        ConfigDifference(name, tuple(one.get(name) for one in flat), tuple(name in one for one in flat))
        for name in names
    ]
    return [one for one in found if not all(one.given) or any(value != one.values[0] for value in one.values)]


def _entries(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _entries(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
