"""The window of a run: the newest sequences as its policy reads them, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trmon.domain.adaptation.sample import PolicySample
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.acceptance import Policy, PolicyError

Place = tuple[int, int]
"""An attempt and a step of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """Samples by place, oldest first; as few of the newest as hold `n_sequences`."""

    n_sequences: int
    parts: Mapping[Place, PolicySample] = field(default_factory=dict)

    @classmethod
    def of(cls, newest_first: Iterable[tuple[Place, PolicySample]], *, n_sequences: int) -> SampleWindow:
        """Return the window of a history; no more of it is asked for than fits."""
        kept: list[tuple[Place, PolicySample]] = []
        missing = n_sequences
        for place, sample in newest_first:
            kept.append((place, sample))
            missing -= len(sample)
            if missing <= 0:
                break
        return cls(n_sequences=n_sequences, parts=dict(reversed(kept)))

    def put(self, place: Place, sample: PolicySample) -> SampleWindow:
        """Return the window with a sample more; at a place that has one, the last update of a step, it is replaced."""
        parts = {**self.parts, place: sample}
        surplus = sum(len(part) for part in parts.values()) - self.n_sequences
        for oldest in list(parts):
            surplus -= len(parts[oldest])
            if surplus < 0:
                break
            del parts[oldest]
        return replace(self, parts=parts)

    def sample(self) -> PolicySample | None:
        """Return all of it as one; None where there is nothing."""
        return PolicySample.merge(self.parts.values()) if self.parts else None


def sample_of_reports(batch: Iterable[Columns], policy: Policy) -> PolicySample | None:
    """Return what a policy reads of the reports of a batch; None where they lack what it needs, or there are none."""
    try:
        parts = [PolicySample.of(columns, policy) for columns in batch]
    except PolicyError:
        return None
    return PolicySample.merge(parts) if parts else None
