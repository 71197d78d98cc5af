"""The window of a run: samples of its newest sequences, by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trmon.domain.adaptation.sample import PolicySample
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

StepKey = tuple[int, int]
"""An attempt and a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """Samples by step, oldest first: as few of the newest as contain `n_sequences`."""

    n_sequences: int
    parts: Mapping[StepKey, PolicySample] = field(default_factory=dict)

    @classmethod
    def of(cls, newest_first: Iterable[tuple[StepKey, PolicySample]], *, n_sequences: int) -> SampleWindow:
        """Return the window of a history; reads no more of it than fits."""
        kept: list[tuple[StepKey, PolicySample]] = []
        missing = n_sequences
        for step_key, sample in newest_first:
            kept.append((step_key, sample))
            missing -= len(sample)
            if missing <= 0:
                break
        return cls(n_sequences=n_sequences, parts=dict(reversed(kept)))

    def with_sample(self, step_key: StepKey, sample: PolicySample) -> SampleWindow:
        """Return the window with another sample, which replaces an earlier one of the same step."""
        parts = {**self.parts, step_key: sample}
        surplus = sum(len(part) for part in parts.values()) - self.n_sequences
        for oldest in list(parts):
            surplus -= len(parts[oldest])
            if surplus < 0:
                break
            del parts[oldest]
        return replace(self, parts=parts)

    def sample(self) -> PolicySample | None:
        """Return all samples as one; None if there are none."""
        return PolicySample.merge(self.parts.values()) if self.parts else None


def sample_of_reports(batch: Iterable[Columns], policy: Policy) -> PolicySample | None:
    """Return the sample of the reports of a batch; None without reports, or if they lack data that the policy needs."""
    try:
        parts = [PolicySample.of(columns, policy) for columns in batch]
    except PolicyError:
        return None
    return PolicySample.merge(parts) if parts else None
