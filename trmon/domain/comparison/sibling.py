"""The healthy sibling of a run: what to compare an ill run with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.comparison.config_differences import config_differences
from trmon.domain.diagnosis import Assurance, Diagnosis
from trmon.domain.health.verdict import RunVerdict, Urgency
from trmon.domain.runs.run import Run

SOUND = frozenset({Assurance.HEALTHY, Assurance.NO_DRIFT_FOUND, Assurance.TRAINING_HEALTHY})


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingCandidate:
    """Another run of the project, with its verdict and its newest diagnosis, None before it was diagnosed."""

    run: Run
    verdict: RunVerdict
    diagnosis: Diagnosis | None

    @property
    def is_sound(self) -> bool:
        """Whether nothing is or was found in the run, as far as it could be judged."""
        is_quiet = self.verdict.since_step is None and self.verdict.urgency is Urgency.NONE
        return is_quiet and self.diagnosis is not None and self.diagnosis.assurance in SOUND


def healthy_sibling(run: Run, candidates: Iterable[SiblingCandidate]) -> Run | None:
    """Return the sound run whose configuration differs least, the newest of several; None without a sound one."""
    sound = [one.run for one in candidates if one.run.id != run.id and one.is_sound]
    return min(sound, key=lambda other: (len(config_differences([run.config, other.config])), -other.id), default=None)
