"""Read and change a service's data from Python: runs, signals, alerts, diagnoses, what-ifs and notes.

from trmon_client.api import Service

service = Service("http://127.0.0.1:8642")
print(service.diagnosis("math/grpo").title)
frame = service.signals("math/grpo", ["mask_rate", "reward_mean"]).to_pandas()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trmon_client.api.alerts import AckInfo, AlertInfo, MemberInfo, RuleInfo
from trmon_client.api.answers import ApiNumber
from trmon_client.api.batches import BatchInfo, QuarantinedInfo, SequencesInfo
from trmon_client.api.budget import BudgetInfo
from trmon_client.api.comparison import ComparedRun, ComparisonInfo
from trmon_client.api.diagnosis import (
    CollapseRiskInfo,
    DiagnosisInfo,
    EvidenceInfo,
    FindingInfo,
    IncidentInfo,
    RemedyInfo,
)
from trmon_client.api.errors import (
    AccessDenied,
    IncompatibleService,
    NotFoundError,
    RequestRefused,
    ServiceBusy,
    ServiceError,
    ServiceUnreachable,
)
from trmon_client.api.policies import PolicyInfo, WhatIfInfo
from trmon_client.api.runs import NoteInfo, RunInfo, RunStatus, VerdictInfo
from trmon_client.api.service import Service

if TYPE_CHECKING:
    from trmon_client.api.signals import RunComparison, SignalBand, SignalHistory

__all__ = [
    "AccessDenied",
    "AckInfo",
    "AlertInfo",
    "ApiNumber",
    "BatchInfo",
    "BudgetInfo",
    "CollapseRiskInfo",
    "ComparedRun",
    "ComparisonInfo",
    "DiagnosisInfo",
    "EvidenceInfo",
    "FindingInfo",
    "IncidentInfo",
    "IncompatibleService",
    "MemberInfo",
    "NotFoundError",
    "NoteInfo",
    "PolicyInfo",
    "QuarantinedInfo",
    "RemedyInfo",
    "RequestRefused",
    "RuleInfo",
    "RunComparison",
    "RunInfo",
    "RunStatus",
    "SequencesInfo",
    "Service",
    "ServiceBusy",
    "ServiceError",
    "ServiceUnreachable",
    "SignalBand",
    "SignalHistory",
    "VerdictInfo",
    "WhatIfInfo",
]

_WITH_NUMPY = ("RunComparison", "SignalBand", "SignalHistory")


def __getattr__(name: str) -> Any:
    """Import what loads numpy when it is first used: commands that list runs start without it."""
    if name not in _WITH_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("trmon_client.api.signals"), name)
    return value
