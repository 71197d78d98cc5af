"""Response schemas of comparisons."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trmon.api.fleet.schemas import FleetRunOut
from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.api.policies.schemas import PolicyVersionOut


class ConfigDifferenceOut(ResponseModel):
    """An entry of the configuration that is not the same in all runs, with its value in each."""

    name: str = Field(description="The entry; nested ones have dotted names.")
    values: list[Any]
    given: list[bool] = Field(description="Which runs have the entry at all.")


class PartingOut(ResponseModel):
    """A signal in which a run leaves the first one, and where."""

    signal: str
    place: float = Field(description="The step, or the seconds since the run's start, from which it stays away.")
    from_start: bool = Field(description="Whether they differ from their first common step on.")


class ComparedRunOut(ResponseModel):
    """One of the compared runs: its verdict, its policy, its signals, and where it parts from the first run."""

    fleet: FleetRunOut
    policy: PolicyVersionOut
    created_at: float
    step: list[int]
    elapsed_seconds: list[float] = Field(description="From the run's creation until the step closed.")
    signals: dict[str, list[Number]] = Field(description="The mean of each point.")
    partings: list[PartingOut] = Field(description="The earliest first; those that differ from the start last.")
    sentence: str = Field(description="Where it parts from the first run, in words; empty for the first run.")


class ComparisonOut(ResponseModel):
    """Two to eight runs side by side."""

    by: str = Field(description="What places are: step or time.")
    proposed: bool = Field(description="Whether the second run is the healthy sibling that the service chose.")
    same_policy: bool
    config: list[ConfigDifferenceOut]
    runs: list[ComparedRunOut]
