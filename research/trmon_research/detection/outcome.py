"""What a run's course and what was told of it amount to: fell, found, when, with which cause."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon.domain.analysis.collapse import find_collapse
from trmon_research.detection.faults import RIGHT_CAUSES, InjectedFault
from trmon_research.detection.record import LAB, LAB_HEALTHY
from trmon_research.detection.recorded_run import RecordedCourse, RunName
from trmon_research.detection.replay import Told, ToldNotification

LAB_CAUSES = {
    "QUANTISE": "engine_mismatch moe_routing",
    "STALE": "stale_rollouts",
    "ROUTER": "moe_routing engine_mismatch",
    "PAD": "corrupt_logprobs",
    "SUPPORT": "support_shift",
    "LR": "step_too_large clip_saturation",
    "TEMPERATURE": "temperature",
    "NAN": "not_a_number",
    "ENTROPY": "entropy_explosion entropy_collapse",
    "REWARD": "reward_collapse reward_decline no_learning_signal",
    "LENGTH": "length_collapse length_hacking length_surge",
}
CONFIDENCE_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One replayed run: `onset` is the injection, `fell_at` the label's onset of the collapse.

    `found` is the first notification from the injection on; `last_cause` is that of the last update of its incident.
    """

    name: RunName
    onset: int
    fell_at: int | None
    told_before: int
    found: ToldNotification | None
    last_cause: str | None
    pages: int
    warnings: int
    openings: int

    @classmethod
    def of(cls, course: RecordedCourse, told: Told) -> RunOutcome:
        """Return the outcome of a run."""
        notifications = [one for one in told.notifications if one.state == "firing"]
        onset = 0 if is_healthy(course.name) else course.onset_step
        after = [one for one in notifications if one.step >= onset]
        incidents = [one for one in after if one.rule == INCIDENT_RULE]
        pages = [one for one in notifications if one.pages]
        return cls(
            name=course.name,
            onset=onset,
            fell_at=collapse_of(course),
            told_before=len(notifications) - len(after),
            found=next(iter(after), None),
            last_cause=incidents[-1].cause if incidents else None,
            pages=len(pages),
            warnings=len(notifications) - len(pages),
            openings=sum(one.opens for one in notifications),
        )

    @property
    def is_right(self) -> bool:
        """Whether the first notification named a finding that leads to the fault."""
        return self.found is not None and self.found.cause in right_causes(self.name)

    @property
    def is_right_in_the_end(self) -> bool:
        """Whether the last notification of the incident did."""
        return self.last_cause in right_causes(self.name)

    @property
    def delay(self) -> int | None:
        """Steps from the injection to the first notification."""
        return None if self.found is None else self.found.step - self.onset

    @property
    def delay_of_collapse(self) -> int | None:
        """Steps from the collapse to the first notification, negative if that came before it."""
        return None if self.found is None or self.fell_at is None else self.found.step - self.fell_at


def collapse_of(course: RecordedCourse) -> int | None:
    """Return where a run collapsed by the reward that its trainer saw or by the true one, whichever fell first."""
    norms = course.grad_norms.tolist()
    found = [find_collapse(rewards.tolist(), grad_norms=norms) for rewards in (course.rewards, course.true_rewards)]
    return min((collapse.step for collapse in found if collapse is not None), default=None)


def is_healthy(name: RunName) -> bool:
    """Whether nothing was injected into a run."""
    return name.kind == LAB_HEALTHY or (name.testbed != LAB and InjectedFault[name.kind].is_healthy)


def right_causes(name: RunName) -> list[str]:
    """Return the ids of the findings that lead to the fault of a run."""
    if is_healthy(name):
        return []
    return (LAB_CAUSES[name.kind] if name.testbed == LAB else RIGHT_CAUSES[InjectedFault[name.kind]]).split()


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95% interval of a share; (0, 1) without a trial. Source: Wilson (1927), JASA 22, 209-212."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = successes / n, CONFIDENCE_Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = CONFIDENCE_Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def median_of(values: list[int | None]) -> str:
    """Return the median of the known values as text, empty if there is none."""
    known = [value for value in values if value is not None]
    return f"{median(known):g}" if known else ""
