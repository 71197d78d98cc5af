"""Observations of a diagnosis: a finding, whether it is true, and its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.model.finding import Finding
from trmon.domain.model.finding_form import FindingForm
from trmon.domain.rules.condition import ThresholdSide, Truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A signal beyond its threshold: its newest value beyond it, and the step since which it has been.

    `away_from` is the point to which a distance refers, such as 1 for a ratio. `rules_out` is true if the value is a
    usual one, which counts because it excludes another cause: its threshold is no limit to respect.
    """

    signal: str
    value: float
    bound: ThresholdSide
    threshold: float
    since_step: int
    away_from: float | None = None
    rules_out: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that a finding needs but that is unknown, and how to provide it.

    `more_steps` is true if its inputs are sent, and only the history is too short.
    """

    signal: str
    provide: str
    more_steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finding: true with its evidence and first step, unknown with the missing signals, or false."""

    finding: Finding
    truth: Truth
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since_step: int | None = None

    @property
    def form(self) -> FindingForm | None:
        """Which of its forms the finding has, by the side on which its evidence is; None if it has no forms."""
        if self.finding is not Finding.ENTROPY:
            return None
        bounds = {item.bound for item in self.evidence if item.signal == "entropy_relative"}
        return _ENTROPY_FORMS[bounds.pop()] if len(bounds) == 1 else None

    @property
    def needs_only_steps(self) -> bool:
        """Whether all that it lacks comes with more steps."""
        return bool(self.missing) and all(gap.more_steps for gap in self.missing)


_ENTROPY_FORMS = {
    ThresholdSide.BELOW: FindingForm.ENTROPY_COLLAPSE,
    ThresholdSide.ABOVE: FindingForm.ENTROPY_EXPLOSION,
}
