"""The cause that a run's diagnosis names: that of the open incident, else the leading finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trmon.domain.batches.batch import BatchRow
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.features import history_of_batches
from trmon.domain.finding import Finding
from trmon.domain.incidents.incident import Incident

DIAGNOSED_ROWS = 512
"""256 steps of a rollout and its last update each, as many as the service reads."""


@dataclass(frozen=True, slots=True)
class StandingCause:
    """A finding and the last step before it began; None if nothing was found, or if it began with the run."""

    finding: Finding | None
    last_good_step: int | None


def standing_cause(incident: Incident | None, rows: Sequence[BatchRow]) -> StandingCause:
    """Return the cause after the newest of a run's rows. Args: incident: the newest one."""
    is_open = incident is not None and incident.is_open
    if incident is not None and is_open and incident.finding is not None:
        return StandingCause(incident.finding, incident.last_good_step)
    newest = rows[-DIAGNOSED_ROWS:]
    observed = diagnose(history_of_batches(newest)).observed
    since = observed[0].since_step if observed else None
    known = None if since is None or since == newest[0].key.step else since - 1
    of_incident = incident.last_good_step if incident is not None and is_open else None
    return StandingCause(observed[0].finding if observed else None, known if of_incident is None else of_incident)
