"""A comparison of runs, as the service answers it."""

from __future__ import annotations

from typing import Any

from trmon_client.api.answers import AnswerInfo, ApiNumber
from trmon_client.api.runs import RunStatus


class ConfigDifferenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """An entry that is not the same in all configurations; `given` says which runs have it at all."""

    name: str
    values: tuple[Any, ...]
    given: tuple[bool, ...]


class PartingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal in which a run leaves the first one; `place`: the step, or the seconds since its start."""

    signal: str
    place: float
    from_start: bool = False


class ComparedPolicy(AnswerInfo, frozen=True, kw_only=True):
    """The policy that decides over a run's sequences."""

    name: str
    hash: str


class ComparedRun(AnswerInfo, frozen=True, kw_only=True):
    """A run with its verdict, its policy, its signals by step, and where it leaves the first run, also in words."""

    fleet: RunStatus
    policy: ComparedPolicy
    created_at: float
    step: tuple[int, ...]
    elapsed_seconds: tuple[float, ...]
    signals: dict[str, tuple[ApiNumber, ...]]
    partings: tuple[PartingInfo, ...]
    sentence: str


class ComparisonInfo(AnswerInfo, frozen=True, kw_only=True):
    """Runs side by side; `proposed`: the service chose the second one, a sound run with the closest configuration."""

    by: str
    proposed: bool
    same_policy: bool
    config: tuple[ConfigDifferenceInfo, ...]
    runs: tuple[ComparedRun, ...]
