"""The context of a pass of the pipeline: all inputs except the batch and the pipeline state."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.policies import PolicyRegistry
from trmon.domain.rules.rule import Rule, RuleSet
from trmon.domain.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """A run, its policies, rules and receivers, and the time of the pass.

    `receivers` get notifications of firing alerts; `all_receivers` are those that may have got one, also under another
    owner of the run, and get the resolved ones.
    """

    run: Run
    policies: PolicyRegistry
    rules: RuleSet
    receivers: tuple[str, ...]
    public_url: str | None
    now: float
    all_receivers: tuple[str, ...] = ()
    runbook_base_url: str | None = None

    def runbook_url(self, rule: str) -> str | None:
        """Return the address of a rule's runbook, or None if it has none."""
        return None if self.runbook_base_url is None else f"{self.runbook_base_url.rstrip('/')}/{rule}"

    @property
    def signal_rules(self) -> tuple[Rule, ...]:
        """The rules over signals of batches."""
        return self.rules.over_signals

    @property
    def state_rules(self) -> tuple[Rule, ...]:
        """The rules over the state of the run or its live launches."""
        return self.rules.over_states

    def rule(self, name: str) -> Rule | None:
        """Return a rule by its name, or None."""
        return self.rules.by_name.get(name)
