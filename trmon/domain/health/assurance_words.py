"""The words of a verdict without problems: what was measured, and in one line what was not."""

from __future__ import annotations

from trmon.domain.diagnosis import Assurance, Diagnosis, Measurement
from trmon.domain.health.verdict import VerdictKind

KINDS = {
    Assurance.HEALTHY: VerdictKind.HEALTHY,
    Assurance.NO_DRIFT_FOUND: VerdictKind.NO_DRIFT_FOUND,
    Assurance.TRAINING_HEALTHY: VerdictKind.TRAINING_HEALTHY,
    Assurance.UNKNOWN: VerdictKind.UNKNOWN,
}
MAX_MEASUREMENTS = 3


def assurance_words(diagnosis: Diagnosis) -> str:
    """Return why a run without problems has its verdict."""
    steps = step_count(diagnosis.steps)
    match diagnosis.assurance:
        case Assurance.HEALTHY:
            return f"no finding in {steps}"
        case Assurance.NO_DRIFT_FOUND:
            so_far = " so far" if diagnosis.needs_more_steps else ""
            return f"{_values(diagnosis.agreement)} in {steps}{so_far}{_not_measured(diagnosis)}"
        case Assurance.TRAINING_HEALTHY:
            return f"agreement not measured{_how_to_measure(diagnosis)}; {_values(diagnosis.training)} in {steps}"
        case _ if diagnosis.shortfall:
            return f"no finding, but {', '.join(f'{item.signal} is {item.value:.3g}' for item in diagnosis.shortfall)}"
        case _:
            return (
                f"no agreement of log-probs, reward, entropy, length or grad_norm is known{_how_to_measure(diagnosis)}"
            )


def step_count(n: int) -> str:
    """Return a number of steps in words."""
    return f"{n} step" if n == 1 else f"{n} steps"


def _values(measurements: tuple[Measurement, ...]) -> str:
    return ", ".join(f"{item.signal} {item.value:.3g}" for item in measurements[:MAX_MEASUREMENTS])


def _not_measured(diagnosis: Diagnosis) -> str:
    """Return the first finding that lacks an argument, the argument, and how many other arguments are lacking.

    Where none lacks any, the checks that are not known need more steps.
    """
    lacking = [
        (observation.finding.title, gap.provide)
        for observation in diagnosis.unknown
        for gap in observation.missing
        if not gap.more_steps
    ]
    if not lacking:
        return "; the other checks need more steps" if diagnosis.needs_more_steps else ""
    # What an argument of log_batch gives comes before what nothing can give.
    title, provide = min(lacking, key=lambda gap: not gap[1].startswith("pass "))
    more = len({gap[1] for gap in lacking}) - 1
    return f"; not measured: {title} ({provide}){f' and {more} more' if more else ''}"


def _how_to_measure(diagnosis: Diagnosis) -> str:
    provided = [gap.provide for gap in diagnosis.missing if gap.provide.startswith("pass rollout_logprobs")]
    return f" ({provided[0]})" if provided else ""
