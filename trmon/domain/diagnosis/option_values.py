"""Values of options in a remedy: fixed ones, and ones that depend on the configuration of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from trmon.domain.diagnosis.run_config import config_number, config_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a remedy can know of its run: the configuration, and the last good step if there is one."""

    config: Mapping[str, Any]
    last_good_step: int | None = None


@dataclass(frozen=True, slots=True)
class Multiple:
    """The present value times a factor; `least` bounds it from below and makes it a whole number."""

    factor: float
    words: str
    least: int | None = None

    def text(self, present: float | None) -> str:
        """Return the value, or the words for it if the present one is not known."""
        if present is None:
            return self.words
        if self.least is not None:
            return str(max(self.least, int(present * self.factor)))
        return short_number(present * self.factor)


@dataclass(frozen=True, slots=True)
class Present:
    """The present value of another option."""

    option: str
    otherwise: str

    def text(self, facts: RunFacts) -> str:
        """Return the present value of the other option, or the value to take if it is not known."""
        present = config_value(facts.config, self.option)
        return self.otherwise if present is None else str(present)


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The path of the last checkpoint at or before the last good step.

    `folder` and `every` are the options with the folder of checkpoints and with the steps between two; `quote` is put
    around the path.
    """

    folder: str
    every: str
    name: str
    quote: str = ""

    def text(self, facts: RunFacts) -> str:
        """Return the path as far as it is known."""
        step = facts.last_good_step
        if step is None:
            return "the last good checkpoint"
        every = config_number(facts.config, self.every)
        if every is None or every < 1:
            return f"the last checkpoint at or before step {step}"
        saved = step - step % int(every)
        if saved <= 0:
            return f"none: no checkpoint was saved at or before step {step}"
        folder = config_value(facts.config, self.folder)
        return f"{self.quote}{folder or '...'}/{self.name}{saved}{self.quote}"


OptionValue: TypeAlias = str | Multiple | Present | SavedCheckpoint
Options: TypeAlias = Mapping[str, OptionValue]


def rendered_options(options: Options, facts: RunFacts) -> dict[str, str]:
    """Return the values of options as text."""
    return {option: _text(option, value, facts) for option, value in options.items()}


def _text(option: str, value: OptionValue, facts: RunFacts) -> str:
    match value:
        case str():
            return value
        case Multiple():
            return value.text(config_number(facts.config, option))
        case Present() | SavedCheckpoint():
            return value.text(facts)


def short_number(value: float) -> str:
    """Return a number in three digits, such as 5e-7."""
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa
