"""Inhibition: while a cause fires, nobody is told of its symptoms on the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from trmon.domain.alerts.alert import Alert
from trmon.domain.model.severity import Severity

Causes = Mapping[str, frozenset[str]]
"""The symptoms of each cause, by the names of their rules."""

RANK = {Severity.INFO: 0, Severity.WARN: 1, Severity.PAGE: 2}


def check_inhibitions(causes: Mapping[str, Iterable[str]]) -> Causes:
    """Return causes with their symptoms. Errors: ValueError naming the cycle in which nobody would hear of anything."""
    found = {cause: frozenset(symptoms) for cause, symptoms in causes.items()}
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        raise ValueError(f"inhibition goes in a circle: {' <- '.join(error.args[1])}") from error
    return found


SYMPTOMS = ("mask_rate", "moderate_drift", "sequence_ess_drop")
"""What any cause of drift shows sooner or later."""

CAUSES = check_inhibitions(
    {
        "corrupt_logprobs": ("engine_mismatch", "variance_blowup", *SYMPTOMS),
        "moe_routing": ("engine_mismatch", *SYMPTOMS),
        "engine_mismatch": SYMPTOMS,
        "stale_rollouts": SYMPTOMS,
        "variance_blowup": ("moderate_drift", "sequence_ess_drop"),
    }
)


def inhibiting_alert(alert: Alert, firing: Iterable[Alert], *, causes: Causes = CAUSES) -> Alert | None:
    """Return the firing alert that mutes another one, or None.

    A cause mutes nothing more severe than itself: a warning never keeps a page from whoever must act.
    """
    return next(
        (
            cause
            for cause in firing
            if alert.rule in causes.get(cause.rule, ()) and RANK[cause.severity] >= RANK[alert.severity]
        ),
        None,
    )
