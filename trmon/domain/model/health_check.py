"""A checkup: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """How something is: well; to be looked at some day; or in the way of what the service promises."""

    WELL = "ok"
    DOUBTFUL = "warn"
    ILL = "fail"


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was looked at; `advice` is empty where all is well."""

    what: str
    health: Health
    found: str
    advice: str = ""


def well(what: str, found: str) -> Observation:
    """Return that something is as it should be."""
    return Observation(what, Health.WELL, found)


def doubtful(what: str, found: str, *, advice: str) -> Observation:
    """Return that something should be looked at."""
    return Observation(what, Health.DOUBTFUL, found, advice)


def ill(what: str, found: str, *, advice: str) -> Observation:
    """Return that something keeps the service from what it promises."""
    return Observation(what, Health.ILL, found, advice)
