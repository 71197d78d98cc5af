"""Advice: what a trainer might do about its learning rate, its KL coefficient, or itself; never more than advice."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon_client.core.wire.decodable_types import decodable

DECAY_FACTOR = 0.5
DECAY_EVERY_STEPS = 100
MAX_GROWTH = 1.20
KL_CLIP = 0.2
TARGET_STEPS = 20
MIN_TARGET_STEPS = 5
KL_HORIZON = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LrDecay:
    """One lasting cut of the learning rate, known by the step that it was first advised at."""

    factor: float
    step: int


@decodable
@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is advised after a step; `reasons` says why for everything that is not neutral.

    `lr_scale` is for Adam-like optimizers, `lr_scale_sgd` for plain ones, both for the next steps only; `lr_decay`
    lasts; `kl_factor` multiplies the coefficient of a KL penalty, None where the run states no target.
    """

    step: int
    lr_scale: float = 1.0
    lr_scale_sgd: float = 1.0
    lr_decay: LrDecay | None = None
    kl_factor: float | None = None
    stop: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it as acknowledgements carry it, JSON-able."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def lr_scales(ess_seq: float, *, target: float) -> tuple[float, float]:
    """Return the scales of the learning rate for Adam-like and for plain optimizers.

    Args: ess_seq: in (0, 1]; target: the run's own while it was on-policy.
    Returns: min(1, sqrt(ess_seq/target)) and the same without the root; 1 where either is NaN or the target is 0.
    Source: [VCPO]; formulas, section 8.
    """
    if math.isnan(ess_seq) or not target > 0:
        return 1.0, 1.0
    share = min(1.0, ess_seq / target)
    return math.sqrt(share), share


def ess_target(rows: Sequence[BatchRow]) -> float:
    """Return the median ess_seq of the primary pair over on-policy rows; NaN for fewer than 5 rows.

    Args: rows: the run's first gauge rows; where hardly any is on-policy, as in an asynchronous trainer, all count.
    """
    known = [row for row in rows if not math.isnan(_ess_seq(row))]
    on_policy = [row for row in known if not row.signals.get("version_lag_mean", 0.0) > 0]
    chosen = on_policy if len(on_policy) >= MIN_TARGET_STEPS else known
    return median(map(_ess_seq, chosen)) if len(chosen) >= MIN_TARGET_STEPS else math.nan


def lr_decay(growth: float, *, step: int, last: LrDecay | None) -> LrDecay | None:
    """Return the newest cut of the learning rate: a new one where responses surge, at most one in 100 steps.

    Args: growth: response_length_growth; last: the cut before, forgotten by a run that went back in steps.
    Source: [LR]; formulas, section 8.
    """
    if last is not None and step < last.step:
        last = None
    if growth > MAX_GROWTH and (last is None or step - last.step >= DECAY_EVERY_STEPS):
        return LrDecay(factor=DECAY_FACTOR, step=step)
    return last


def kl_factor(kl: float, *, target: float, n_sequences: int, horizon: float) -> float:
    """Return what to multiply the coefficient of a KL penalty by: 1 + clip(KL/target - 1, -0.2, 0.2) n/H.

    Args: kl, target: nats; n_sequences: of the batch; horizon: sequences over which the coefficient may adapt.
    Returns: 1 for a KL that is NaN; never below 0.
    Source: Ziegler et al. (2019); formulas, section 8.
    """
    if math.isnan(kl):
        return 1.0
    error = min(max(kl / target - 1.0, -KL_CLIP), KL_CLIP)
    return max(0.0, 1.0 + error * n_sequences / horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class KlTarget:
    """The KL to the reference policy that a run's configuration asks for, nats, and over how many sequences."""

    nats: float
    horizon: float = KL_HORIZON

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> KlTarget | None:
        """Return the target in `kl_target` and `kl_horizon`; None where there is none that can be."""
        given = {"nats": config.get("kl_target"), "horizon": config.get("kl_horizon", KL_HORIZON)}
        numbers = {
            name: float(value)
            for name, value in given.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
        }
        return cls(**numbers) if len(numbers) == len(given) else None


def advise(
    row: BatchRow, *, target: float, decay: LrDecay | None, kl_target: KlTarget | None, alerts: Sequence[Alert]
) -> Advice:
    """Return what is advised after a gauge row.

    Args: target: of ess_seq; decay: the newest cut of the learning rate; alerts: firing ones that page over batches.
    """
    ess_seq = _ess_seq(row)
    adam, sgd = lr_scales(ess_seq, target=target)
    factor = _kl_factor(row, kl_target)
    reasons = {}
    if adam < 1:
        reasons["lr_scale"] = f"ess_seq is {ess_seq:.3g}, and was {target:.3g} while the run was on-policy"
    if decay is not None:
        reasons["lr_decay"] = f"responses were {MAX_GROWTH:g} times as long as 100 steps before, at step {decay.step}"
    if factor is not None and factor != 1:
        reasons["kl_factor"] = f"the KL to the reference is not at its target of {kl_target and kl_target.nats:g}"
    if alerts:
        reasons["stop"] = alerts[0].summary
    return Advice(
        step=row.key.step,
        lr_scale=adam,
        lr_scale_sgd=sgd,
        lr_decay=decay,
        kl_factor=factor,
        stop=bool(alerts),
        reasons=reasons,
    )


def _kl_factor(row: BatchRow, kl_target: KlTarget | None) -> float | None:
    """The KL to the reference is the trainer's own number: trmon never sees that policy."""
    if kl_target is None or "ref_kl" not in row.scalars:
        return None
    kl = row.scalars["ref_kl"]
    return kl_factor(kl, target=kl_target.nats, n_sequences=row.n_sequences, horizon=kl_target.horizon)


def _ess_seq(row: BatchRow) -> float:
    return row.signals.get(f"{row.primary_pair}_ess_seq", math.nan)
