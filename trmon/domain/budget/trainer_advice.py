"""Advice to the trainer: scale the learning rate or the KL coefficient, or stop; the trainer decides."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import RiskLevel, calibration_words, read_risk, risk_sentence
from trmon.domain.findings.judge import Spell
from trmon.domain.findings.verdict import COLLAPSE
from trmon_client.api.answers import OpenEnum
from trmon_client.api.budget import AdviceInfo, LrDecayInfo, RiskAdviceInfo

PAGE_LR_SCALE = 0.5
"""The cut of the learning rate that reward_collapse asks for too; a prediction does not ask for more."""
ACTIONS = {
    RiskLevel.WARN.value: "look at what drives it and keep a checkpoint",
    RiskLevel.PAGE.value: "keep a checkpoint and halve the learning rate, unless a finding names another cause",
}


def risk_advice(signals: Mapping[str, float]) -> RiskAdviceInfo | None:
    """Return the advice at a row's risk; None without one."""
    model = model_in_use()
    reading = read_risk(signals, model)
    if reading is None:
        return None
    level = reading.level(model.file)
    return RiskAdviceInfo(
        probability=reading.probability,
        level=OpenEnum(level.value),
        driven_by=reading.driven_by,
        calibration=calibration_words(model.file),
        lr_scale=PAGE_LR_SCALE if level is RiskLevel.PAGE else 1.0,
    )


DECAY_FACTOR = 0.5
LENGTHS = ("response_length", "length_limit_share")
"""What the measures of lengths begin with."""
KL_CLIP = 0.2
TARGET_STEPS = 20
MIN_TARGET_STEPS = 5
KL_HORIZON = 10_000.0


def lr_scales(ess_seq: float, *, target: float) -> tuple[float, float]:
    """Return the scales of the learning rate for Adam-like and for plain optimizers.

    Args: ess_seq: in (0, 1]; target: the ess_seq of the run while it was on-policy.
    Returns: min(1, sqrt(ess_seq/target)) and the same without the root; 1 if either is NaN or the target is 0.
    Source: [VCPO]; formulas, section 8.
    """
    if math.isnan(ess_seq) or not target > 0:
        return 1.0, 1.0
    share = min(1.0, ess_seq / target)
    return math.sqrt(share), share


def ess_target(rows: Sequence[BatchRow]) -> float:
    """Return the median ess_seq of the primary pair over on-policy rows; NaN for fewer than 5 rows.

    Args: rows: the first gauge rows of the run; all count if fewer than 5 are on-policy (asynchronous trainers).
    """
    known = [row for row in rows if not math.isnan(_ess_seq(row))]
    on_policy = [row for row in known if not row.signals.get("version_lag_mean", 0.0) > 0]
    selected = on_policy if len(on_policy) >= MIN_TARGET_STEPS else known
    return median(map(_ess_seq, selected)) if len(selected) >= MIN_TARGET_STEPS else math.nan


def lr_decay(surge: Spell | None, *, step: int, last: LrDecayInfo | None) -> LrDecayInfo | None:
    """Return the newest cut of the learning rate: one for each finding that responses surge while the policy drifts.

    A cut is named by the step at which the surge was found, so that it is the same one after a restart; longer
    responses alone are no reason. Args: surge: the finding length_surge where it stands; last: the previous cut,
    dropped if the run went back in steps. Source: [LR]; formulas, section 8.
    """
    if last is not None and step < last.step:
        last = None
    if surge is None or all(evidence.measure.startswith(LENGTHS) for evidence in surge.evidence):
        return last
    found = surge.trip_place.step
    return LrDecayInfo(factor=DECAY_FACTOR, step=found) if last is None or found > last.step else last


def kl_factor(kl: float, *, target: float, n_sequences: int, horizon: float) -> float:
    """Return the factor for the coefficient of a KL penalty: 1 + clip(KL/target - 1, -0.2, 0.2) n/H.

    Args: kl, target: nats; n_sequences: of the batch; horizon: sequences over which the coefficient adapts.
    Returns: 0 or more; 1 if the KL is NaN.
    Source: Ziegler et al. (2019); formulas, section 8.
    """
    if math.isnan(kl):
        return 1.0
    error = min(max(kl / target - 1.0, -KL_CLIP), KL_CLIP)
    return max(0.0, 1.0 + error * n_sequences / horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class KlTarget:
    """The configured target of the KL to the reference policy, nats, and the horizon in sequences."""

    nats: float
    horizon: float = KL_HORIZON

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> KlTarget | None:
        """Return the target in `kl_target` and `kl_horizon`; None if it is missing or not a positive number."""
        given = {"nats": config.get("kl_target"), "horizon": config.get("kl_horizon", KL_HORIZON)}
        numbers = {
            name: float(value)
            for name, value in given.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
        }
        return cls(**numbers) if len(numbers) == len(given) else None


def advise(
    row: BatchRow,
    *,
    target: float,
    decay: LrDecayInfo | None,
    kl_target: KlTarget | None,
    alerts: Sequence[Alert],
    collapses: Sequence[Alert] = (),
    incident: Alert | None = None,
    has_collapsed: bool = False,
) -> AdviceInfo:
    """Return the advice after a gauge row.

    Args: target: of ess_seq; decay: the newest cut of the learning rate; alerts: firing pages of rules over batches;
    collapses: those of them that end a run that opted in; incident: the open one; has_collapsed: whether the reward
    has, so that nothing is left to predict.
    """
    ess_seq = _ess_seq(row)
    adam, sgd = lr_scales(ess_seq, target=target)
    factor = _kl_factor(row, kl_target)
    reasons = {}
    if adam < 1:
        reasons["lr_scale"] = f"ess_seq is {ess_seq:.3g}; it was {target:.3g} while the run was on-policy"
    if decay is not None:
        reasons["lr_decay"] = (
            f"at step {decay.step}, responses grew and the policy drifted while the reward did not rise"
        )
    if factor is not None and factor != 1:
        reasons["kl_factor"] = f"the KL to the reference differs from its target of {kl_target and kl_target.nats:g}"
    if alerts:
        reasons["stop"] = alerts[0].summary
    if collapses:
        reasons["should_stop"] = collapses[0].summary
    if incident is not None:
        reasons["incident_since"] = incident.summary
    risk = None if has_collapsed else risk_advice(row.signals)
    if risk is not None and (action := ACTIONS.get(risk.level)):
        said = risk_sentence(risk.probability, risk.driven_by, calibration=risk.calibration)
        reasons["collapse_risk"] = f"{said}: {action}"
    return AdviceInfo(
        step=row.key.step,
        lr_scale=adam,
        lr_scale_sgd=sgd,
        lr_decay=decay,
        kl_factor=factor,
        stop=bool(alerts),
        should_stop=bool(collapses),
        incident_since=None if incident is None else incident.since_step,
        collapse_risk=risk,
        reasons=reasons,
    )


def _kl_factor(row: BatchRow, kl_target: KlTarget | None) -> float | None:
    """Return the factor for the KL to the reference, which the trainer sends as a scalar."""
    if kl_target is None or "ref_kl" not in row.scalars:
        return None
    kl = row.scalars["ref_kl"]
    return kl_factor(kl, target=kl_target.nats, n_sequences=row.n_sequences, horizon=kl_target.horizon)


def _ess_seq(row: BatchRow) -> float:
    return row.signals.get(f"{row.primary_pair}_ess_seq", math.nan)


STOP_OPTION = "stop_on_collapse"
STOPPING_FINDINGS = frozenset({COLLAPSE, "not_a_number"})
"""The findings that stop: each is the collapse itself. A stop on findings of drift would have ended 13 of 98 runs that
did not collapse; formulas, section 10."""


def stops_on_collapse(config: Mapping[str, Any]) -> bool:
    """Whether the configuration of a run opts in: `stop_on_collapse` is true."""
    return config.get(STOP_OPTION) is True
