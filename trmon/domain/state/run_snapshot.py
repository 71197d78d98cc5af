"""The snapshot of a run: values that only its worker computes, stored for other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from trmon.domain.advice.advise import Advice
from trmon_client.core.policies.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """Values after a pass: the batch that gauges show, the usual step time, the advice and the proposed policy."""

    gauge_ordinal: int | None = None
    expected_step_seconds: float | None = None
    advice: Advice | None = None
    proposed: Policy | None = None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-compatible document."""
        return {
            "gauge_ordinal": self.gauge_ordinal,
            "expected_step_seconds": self.expected_step_seconds,
            "advice": None if self.advice is None else self.advice.document(),
            "proposed": None if self.proposed is None else self.proposed.spec(),
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> RunSnapshot:
        """Return the snapshot in a document."""
        advice, proposed = document["advice"], document["proposed"]
        return cls(
            gauge_ordinal=document["gauge_ordinal"],
            expected_step_seconds=document["expected_step_seconds"],
            advice=None if advice is None else msgspec.convert(advice, Advice),
            proposed=None if proposed is None else Policy.parse(proposed),
        )
