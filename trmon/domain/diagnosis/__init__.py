"""Diagnosis: a run's newest signals in, the cause of its drift with evidence and remedy out."""

from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.escalation import Escalation, Stage
from trmon.domain.diagnosis.finding import Evidence, Finding, Missing, Observation
from trmon.domain.diagnosis.framework_names import IgnoredName, Translation, translate
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.quadrant import Quadrant
from trmon.domain.diagnosis.remedies import REMEDIES, Remedy
from trmon.domain.diagnosis.required_signals import READINGS
from trmon.domain.diagnosis.thresholds import Thresholds

__all__ = [
    "READINGS",
    "REMEDIES",
    "Diagnosis",
    "Escalation",
    "Evidence",
    "Finding",
    "History",
    "IgnoredName",
    "Missing",
    "Observation",
    "Quadrant",
    "Remedy",
    "Stage",
    "Thresholds",
    "Translation",
    "diagnose",
    "translate",
]
