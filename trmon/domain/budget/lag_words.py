"""What the lag law says of a run, in sentences; each names what is a conjecture."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trmon.domain.budget.lag_law import LagLaw


def lag_sentences(law: LagLaw) -> Iterator[str]:
    """Yield which learning rate the run's lag allows, or what is missing for it, and where its lag is limited."""
    yield _allowed_rate(law)
    if not math.isnan(law.lag_scale) and not math.isinf(law.lag_scale):
        yield f"This learning rate allows lags well below {law.lag_scale:.3g} versions (conjecture)."
    yield _ceiling(law)


def _allowed_rate(law: LagLaw) -> str:
    if math.isnan(law.lag):
        return "The lag was not measured: pass versions and trainer_version to log_batch."
    if not math.isnan(law.lr_scale):
        allowed = f"A lag of {law.lag:.4g} allows learning rates well below {law.lr_scale:.3g} (conjecture)"
        return f"{allowed}{'' if math.isnan(law.lr) else f'; this run has {law.lr:.3g}'}."
    if math.isnan(law.lr):
        return "The learning rate was not sent: log it as scalar lr."
    return (
        f"S eta is {law.s_eta:.3g} and T eta is {law.t_eta:.3g}. Which learning rate this lag allows needs R_batch and "
        "R_crit, fitted on runs of this kind, and the norm of an update: options lag_law of the configuration."
    )


def _ceiling(law: LagLaw) -> str:
    if math.isnan(law.ess_ceiling):
        return "The ceiling of the lag, 50 ess_seq (conjecture), needs log-probs of two policies."
    ceiling = f"the conjectured ceiling of 50 ess_seq, {law.ess_ceiling:.3g}"
    if math.isnan(law.lag):
        return f"A lag pays up to {ceiling}."
    return f"The lag of {law.lag:.4g} is {'above' if law.lag > law.ess_ceiling else 'within'} {ceiling}."
