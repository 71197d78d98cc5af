"""A comparison of runs, as the service answers it."""

from __future__ import annotations

from typing import Annotated, Any

from trmon_client.api.answers import AnswerInfo, ApiNumber, says
from trmon_client.api.policies import PolicyInfo
from trmon_client.api.runs import RunStatus


class ConfigDifferenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """An entry of the configuration that is not the same in all runs, with its value in each."""

    name: Annotated[str, says("The entry; nested ones have dotted names.")]
    values: tuple[Any, ...]
    given: Annotated[tuple[bool, ...], says("Which runs have the entry at all.")]


class PartingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal in which a run leaves the first one, and where."""

    signal: str
    place: Annotated[float, says("The step, or the seconds since the run's start, from which it stays away.")]
    from_start: Annotated[bool, says("Whether they differ from their first common step on.")]


class ComparedRun(AnswerInfo, frozen=True, kw_only=True):
    """One of the compared runs: its verdict, its policy, its signals, and where it parts from the first run."""

    fleet: RunStatus
    policy: PolicyInfo
    created_at: float
    step: tuple[int, ...]
    elapsed_seconds: Annotated[tuple[float, ...], says("From the run's creation until the step closed.")]
    signals: Annotated[dict[str, tuple[ApiNumber, ...]], says("The mean of each point.")]
    partings: Annotated[tuple[PartingInfo, ...], says("The earliest first; those that differ from the start last.")]
    sentence: Annotated[str, says("Where it parts from the first run, in words; empty for the first run.")]


class ComparisonInfo(AnswerInfo, frozen=True, kw_only=True):
    """Two to eight runs side by side."""

    by: Annotated[str, says("What places are: step or time.")]
    proposed: Annotated[bool, says("Whether the second run is the healthy sibling that the service chose.")]
    same_policy: bool
    config: tuple[ConfigDifferenceInfo, ...]
    runs: tuple[ComparedRun, ...]
