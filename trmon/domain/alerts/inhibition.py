"""Inhibition: a firing source alert mutes its target alerts on the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from trmon.domain.alerts.alert import Alert
from trmon.domain.model.severity import Severity

InhibitRules = Mapping[str, frozenset[str]]
"""The target rules of each source rule, by name."""

SEVERITY_RANK = {Severity.INFO: 0, Severity.WARN: 1, Severity.PAGE: 2}


def check_inhibit_rules(targets_by_source: Mapping[str, Iterable[str]]) -> InhibitRules:
    """Return inhibit rules without cycles. Errors: ValueError naming a cycle, whose alerts would all be muted."""
    checked = {source: frozenset(targets) for source, targets in targets_by_source.items()}
    try:
        TopologicalSorter(checked).prepare()
    except CycleError as error:
        raise ValueError(f"inhibit rules form a cycle: {' <- '.join(error.args[1])}") from error
    return checked


SYMPTOMS = ("mask_rate", "moderate_drift", "sequence_ess_drop")
"""Alerts that any cause of drift raises sooner or later."""

INHIBIT_RULES = check_inhibit_rules(
    {
        "corrupt_logprobs": ("engine_mismatch", "variance_blowup", *SYMPTOMS),
        "moe_routing": ("engine_mismatch", *SYMPTOMS),
        "engine_mismatch": SYMPTOMS,
        "stale_rollouts": SYMPTOMS,
        "variance_blowup": ("moderate_drift", "sequence_ess_drop"),
    }
)


def inhibiting_alert(target: Alert, firing: Iterable[Alert], *, rules: InhibitRules = INHIBIT_RULES) -> Alert | None:
    """Return the firing alert that inhibits another one, or None.

    A source never inhibits a target that is more severe: a warning cannot mute a page.
    """
    return next(
        (
            source
            for source in firing
            if target.rule in rules.get(source.rule, ())
            and SEVERITY_RANK[source.severity] >= SEVERITY_RANK[target.severity]
        ),
        None,
    )
