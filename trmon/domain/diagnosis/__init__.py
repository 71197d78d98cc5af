"""Diagnosis: finds the cause of a run's drift from its newest signals, with evidence and a remedy."""

from trmon.domain.diagnosis.assurance import Assurance, Measurement
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.escalation import Escalation, Stage
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.observation import Evidence, Missing, Observation
from trmon.domain.diagnosis.quadrant import Quadrant
from trmon.domain.diagnosis.remedies import FORM_REMEDIES, REMEDIES, remedy_of
from trmon.domain.diagnosis.remedy import Remedy, RenderedRemedy, for_next_run
from trmon.domain.diagnosis.required_signals import REQUIRED_SIGNALS
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.model.finding import Finding

__all__ = [
    "FORM_REMEDIES",
    "REQUIRED_SIGNALS",
    "REMEDIES",
    "Assurance",
    "Diagnosis",
    "Escalation",
    "Evidence",
    "Finding",
    "History",
    "Measurement",
    "Missing",
    "Observation",
    "Quadrant",
    "Remedy",
    "RenderedRemedy",
    "Stage",
    "Thresholds",
    "diagnose",
    "for_next_run",
    "remedy_of",
]
