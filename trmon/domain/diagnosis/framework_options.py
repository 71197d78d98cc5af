"""Options of verl 0.9.1 and of TRL 1.16 (GRPOConfig) that remedies set.

All options exist in these releases. The names of presets are the class methods of verl's RolloutCorrectionConfig that
set the same options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trmon.domain.diagnosis.history import History, config_number
from trmon.domain.findings.configuration import config_value


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

    def value(self, present: float | None) -> str | None:
        """Return the value; None if the present one is not known."""
        if present is None:
            return None
        if self.least is not None:
            return str(max(self.least, int(present * self.factor)))
        return short_number(present * self.factor)


@dataclass(frozen=True, slots=True)
class Present:
    """The present value of another option."""

    option: str
    otherwise: str

    def value(self, facts: RunFacts) -> str:
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

    def value(self, facts: RunFacts) -> str | None:
        """Return the path; None if it is not known as a whole."""
        saved, folder = self._saved_step(facts), config_value(facts.config, self.folder)
        return f"{self.quote}{folder}/{self.name}{saved}{self.quote}" if saved and folder else None

    def words(self, facts: RunFacts) -> str:
        """Return what is known of the checkpoint, in words."""
        step, saved = facts.last_good_step, self._saved_step(facts)
        if step is None:
            return "the last good checkpoint"
        if saved is None:
            return f"the last checkpoint at or before step {step}"
        return (
            f"{self.name}{saved}, the last at or before step {step}"
            if saved
            else f"none: no checkpoint was saved by step {step}"
        )

    def _saved_step(self, facts: RunFacts) -> int | None:
        """Return the step of the checkpoint, 0 if none was saved by then; None if it is not known."""
        step, every = facts.last_good_step, config_number(facts.config, self.every)
        if step is None or every is None or every < 1:
            return None
        return step - step % int(every)


@dataclass(frozen=True, slots=True)
class Beside:
    """A fixed value that makes sense only beside another option's value, which must be known as well."""

    text: str
    other: SavedCheckpoint

    def value(self, facts: RunFacts) -> str | None:
        """Return the value; None while that of the other option is not known."""
        return None if self.other.value(facts) is None else self.text


OptionValue: TypeAlias = str | Multiple | Present | SavedCheckpoint | Beside
Options: TypeAlias = Mapping[str, OptionValue]


@dataclass(frozen=True, slots=True)
class RenderedOptions:
    """Options with their values to paste, and in words those whose value does not follow from what is known."""

    values: dict[str, str]
    in_words: dict[str, str]


def rendered_options(options: Options, facts: RunFacts) -> RenderedOptions:
    """Return the values of options as text."""
    rendered = RenderedOptions({}, {})
    for option, given in options.items():
        value = _value(option, given, facts)
        if value is not None:
            rendered.values[option] = value
        else:
            rendered.in_words[option] = _words(given, facts)
    return rendered


def _value(option: str, given: OptionValue, facts: RunFacts) -> str | None:
    match given:
        case str():
            return given
        case Multiple():
            return given.value(config_number(facts.config, option))
        case Present() | SavedCheckpoint() | Beside():
            return given.value(facts)


def _words(given: OptionValue, facts: RunFacts) -> str:
    match given:
        case Multiple():
            return given.words
        case SavedCheckpoint():
            return given.words(facts)
        case Beside():
            return given.text
        case str() | Present():
            raise TypeError(f"{given} is always known")


def short_number(value: float) -> str:
    """Return a number in three digits, such as 5e-7."""
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
GEO_BAND = '"0.99_1.01"'

HALF = Multiple(0.5, "half of what it is")
HALF_STEPS = Multiple(0.5, "half of what it is", least=1)
TWICE = Multiple(2.0, "twice what it is", least=2)

VERL_LR: Options = {f"{ACTOR}.optim.lr": HALF}
TRL_LR: Options = {"learning_rate": HALF}

VERL_NO_CORRECTION: Options = {f"{CORRECTION}.rollout_is": "null", f"{CORRECTION}.rollout_rs": "null"}
"""Preset `disabled`: measure only."""
VERL_ICEPOP: Options = {
    f"{CORRECTION}.rollout_is": "token",
    f"{CORRECTION}.rollout_is_threshold": '"0.5_5.0"',
    f"{CORRECTION}.rollout_rs": "null",
}
"""Preset `decoupled_token_icepop`."""
VERL_GEO_RS: Options = {
    f"{CORRECTION}.rollout_is": "null",
    f"{CORRECTION}.rollout_rs": "seq_mean_k1",
    f"{CORRECTION}.rollout_rs_threshold": GEO_BAND,
}
"""Preset `decoupled_geo_rs` with the thresholds of [GEO]."""
VERL_GEO_RS_SEQ_TIS: Options = {
    f"{CORRECTION}.rollout_is": "sequence",
    f"{CORRECTION}.rollout_is_threshold": "2.0",
    f"{CORRECTION}.rollout_rs": "seq_mean_k1",
    f"{CORRECTION}.rollout_rs_threshold": GEO_BAND,
}
"""Preset `decoupled_geo_rs_seq_tis`."""
VERL_GEO_RS_TOKEN_TIS: Options = {**VERL_GEO_RS_SEQ_TIS, f"{CORRECTION}.rollout_is": "token"}
"""Preset `decoupled_geo_rs_token_tis`."""
VERL_BYPASS_PG_GEO_RS: Options = {
    **VERL_GEO_RS,
    f"{CORRECTION}.bypass_mode": "true",
    f"{CORRECTION}.loss_type": "reinforce",
}
"""Preset `bypass_pg_geo_rs`."""
VERL_GSPO: Options = {
    f"{ACTOR}.policy_loss.loss_mode": "gspo",
    f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
    f"{ACTOR}.clip_ratio_low": "3e-4",
    f"{ACTOR}.clip_ratio_high": "4e-4",
}
_VERL_CHECKPOINT = SavedCheckpoint("trainer.default_local_dir", "trainer.save_freq", "global_step_")
VERL_RESUME: Options = {
    "trainer.resume_mode": Beside("resume_path", _VERL_CHECKPOINT),
    "trainer.resume_from_path": _VERL_CHECKPOINT,
}
VERL_R3: Options = {
    f"{ACTOR}.megatron.router_replay.mode": "R3",
    f"{ROLLOUT}.enable_rollout_routing_replay": "true",
}

TRL_ICEPOP: Options = {
    "vllm_importance_sampling_mode": '"token_mask"',
    "vllm_importance_sampling_clip_min": "0.5",
    "vllm_importance_sampling_clip_max": "5.0",
}
TRL_SEQUENCE_TIS: Options = {
    "vllm_importance_sampling_mode": '"sequence_truncate"',
    "vllm_importance_sampling_clip_max": "2.0",
}
TRL_TOKEN_TIS: Options = {
    "vllm_importance_sampling_mode": '"token_truncate"',
    "vllm_importance_sampling_clip_max": "2.0",
}
TRL_GSPO: Options = {
    "importance_sampling_level": '"sequence"',
    "loss_type": '"grpo"',
    "epsilon": "3e-4",
    "epsilon_high": "4e-4",
}
TRL_RESUME: Options = {
    "resume_from_checkpoint": SavedCheckpoint("output_dir", "save_steps", "checkpoint-", quote='"'),
}


def with_sent_options(config: Mapping[str, Any], history: History) -> dict[str, Any]:
    """Return a configuration with the learning rate that was sent: the largest, as schedules only lower it.

    Options that the configuration has stay as they are.
    """
    rates = history.values.get("lr")
    if rates is None or np.isnan(rates).all():
        return dict(config)
    rate = float(np.nanmax(rates))
    sent = {option: rate for option in (*VERL_LR, *TRL_LR) if config_value(config, option) is None}
    return {**config, **sent}
