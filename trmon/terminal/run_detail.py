"""Everything that `trmon show` prints of a run, read from a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trmon.domain.identity import RunKey
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon_client.api import DiagnosisInfo, PolicyInfo, RunStatus, Service, SignalHistory
from trmon_client.core.column_schema import PRIMARY_ORDER

POINTS = 40
MAIN = (
    *("reward_mean", "response_length_mean"),
    *("kl_k3", "kl_k1", "chi2_token", "ess_token", "ess_seq", "prob_pearson", "ratio_mean", "abs_log_ratio_max"),
    *("version_lag_mean", "clip_fraction", "zero_variance_groups", "invalid_fraction", "grad_norm"),
)
"""The signals in the table; those of a pair by their stem."""
MASK_RATE = "mask_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run: `diagnosis` and `history` are None before its first step closes; `drawn` names what is in `history`."""

    run: RunStatus
    policy: PolicyInfo
    diagnosis: DiagnosisInfo | None
    history: SignalHistory | None
    drawn: tuple[str, ...]

    @property
    def mask_rates(self) -> Mapping[str, str]:
        """The signal of each policy's mask rate by the policy's name, the active policy first."""
        shadows = {shadow["name"]: f"{SHADOW_PREFIX}{shadow['name']}" for shadow in self.policy.shadows}
        return {self.policy.name: MASK_RATE, **shadows}


def fetch_run_detail(service: Service, key: RunKey) -> RunDetail:
    """Return the details of a run. Errors: ServiceError, also if there is no such run."""
    name = str(key)
    run, policy = service.status(name), service.policy(name)
    if run.reward is None:
        return RunDetail(run=run, policy=policy, diagnosis=None, history=None, drawn=())
    diagnosis = service.diagnosis(name)
    names = service.signal_names(name)
    drawn = _drawn(names)
    rates = [name for name in names if name == MASK_RATE or name.startswith(SHADOW_PREFIX)]
    history = service.signals(name, (*drawn, *rates), points=POINTS)
    return RunDetail(run=run, policy=policy, diagnosis=diagnosis, history=history, drawn=drawn)


def _drawn(names: Sequence[str]) -> tuple[str, ...]:
    """Return the full names of the main signals that a run has; of a pair's signals, those of the primary pair."""
    found = (next((name for name in _spellings(stem) if name in names), None) for stem in MAIN)
    return tuple(name for name in found if name is not None)


def _spellings(stem: str) -> tuple[str, ...]:
    return (stem, *(f"{pair}_{stem}" for pair in PRIMARY_ORDER))
