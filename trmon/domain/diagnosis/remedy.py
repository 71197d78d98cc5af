"""A remedy: what to change first, and what if the problem persists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trmon.domain.diagnosis.option_values import Options, RunFacts, rendered_options


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRemedy:
    """A remedy whose options have the values to set."""

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str]
    trl_next: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change first, as text and as configuration of verl and of TRL, and what to do if the problem persists."""

    fix: str
    verl: Options = field(default_factory=dict)
    trl: Options = field(default_factory=dict)
    persists: str
    verl_next: Options = field(default_factory=dict)
    trl_next: Options = field(default_factory=dict)

    def render(self, config: Mapping[str, Any] | None = None, *, last_good_step: int | None = None) -> RenderedRemedy:
        """Return the remedy with the values that follow from the run's configuration.

        Args: config: TRL's arguments, or verl's configuration, nested or with dotted names.
        """
        facts = RunFacts(config=config or {}, last_good_step=last_good_step)
        return RenderedRemedy(
            fix=self.fix,
            verl=rendered_options(self.verl, facts),
            trl=rendered_options(self.trl, facts),
            persists=self.persists,
            verl_next=rendered_options(self.verl_next, facts),
            trl_next=rendered_options(self.trl_next, facts),
        )
