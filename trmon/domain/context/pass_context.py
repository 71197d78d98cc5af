"""What a run is watched with: everything a pass of the pipeline needs beside the batch and the mind."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_set import RuleSet
from trmon.domain.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """One run, its policies and rules, who hears of its alerts, and the time of this pass.

    `receivers` hear that something fires; that it has resolved is for `everyone` who may have heard so, also under
    another owner.
    """

    run: Run
    policies: PolicyRegistry
    rules: RuleSet
    receivers: tuple[str, ...]
    public_url: str | None
    now: float
    everyone: tuple[str, ...] = ()

    @property
    def signal_rules(self) -> tuple[Rule, ...]:
        """The rules that read batches."""
        return self.rules.over_signals

    @property
    def state_rules(self) -> tuple[Rule, ...]:
        """The rules that read the run's state, or who speaks for it."""
        return self.rules.over_states

    def rule(self, name: str) -> Rule | None:
        """Return a rule by its name."""
        return self.rules.by_name.get(name)
