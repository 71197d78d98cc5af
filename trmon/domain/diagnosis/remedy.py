"""A remedy: what to change first, and what if the problem persists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trmon.domain.diagnosis.option_values import Options, RunFacts, rendered_options

STOP = "Stop, "
"""How the words of a remedy begin that stops the run; once it has ended, they do without."""


def for_next_run(fix: str) -> str:
    """Return a fix without its first word where that stops the run, which has ended."""
    rest = fix.removeprefix(STOP)
    return f"{rest[:1].upper()}{rest[1:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRemedy:
    """A remedy whose options have the values to set, as text to paste.

    Options whose values do not follow from what is known of the run are apart, with words in place of values.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str]
    trl_next: dict[str, str]
    verl_in_words: dict[str, str]
    trl_in_words: dict[str, str]
    verl_next_in_words: dict[str, str]
    trl_next_in_words: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change first, as text and as configuration of verl and of TRL, and what to do if the problem persists."""

    fix: str
    verl: Options = field(default_factory=dict)
    trl: Options = field(default_factory=dict)
    persists: str
    verl_next: Options = field(default_factory=dict)
    trl_next: Options = field(default_factory=dict)

    def render(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        last_good_step: int | None = None,
        has_ended: bool = False,
    ) -> RenderedRemedy:
        """Return the remedy with the values that follow from the run's configuration.

        Args: config: TRL's arguments, or verl's configuration, nested or with dotted names; has_ended: of the run.
        """
        facts = RunFacts(config=config or {}, last_good_step=last_good_step)
        verl, trl = rendered_options(self.verl, facts), rendered_options(self.trl, facts)
        verl_next, trl_next = rendered_options(self.verl_next, facts), rendered_options(self.trl_next, facts)
        return RenderedRemedy(
            fix=for_next_run(self.fix) if has_ended else self.fix,
            verl=verl.values,
            trl=trl.values,
            persists=self.persists,
            verl_next=verl_next.values,
            trl_next=trl_next.values,
            verl_in_words=verl.in_words,
            trl_in_words=trl.in_words,
            verl_next_in_words=verl_next.in_words,
            trl_next_in_words=trl_next.in_words,
        )
