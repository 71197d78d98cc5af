"""The configuration of a run as its framework names it: nested or with dotted names, and its values as text."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any


def config_value(config: Mapping[str, Any], option: str) -> Any | None:
    """Return an option of a configuration: under its whole name, else in nested mappings; None if it is missing.

    An option of a command line is looked up as argparse names it.
    """
    name = _config_name(option)
    if name in config:
        return config[name]
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        inner = config.get(".".join(parts[:cut]))
        if isinstance(inner, Mapping):
            return config_value(inner, ".".join(parts[cut:]))
    return None


def has_option(config: Mapping[str, Any], option: str) -> bool:
    """Whether a configuration has an option, perhaps null, or a group of options of that name."""
    name = _config_name(option)
    parts = name.split(".")
    inner = [(".".join(parts[:cut]), ".".join(parts[cut:])) for cut in range(1, len(parts))]
    return (
        name in config
        or any(str(key).startswith(f"{name}.") for key in config)
        or any(isinstance(config.get(head), Mapping) and has_option(config[head], rest) for head, rest in inner)
    )


IMPORTED = "imported"
"""The option in which an import stores the format of the log and the framework of its metric names."""


def is_imported(config: Mapping[str, Any]) -> bool:
    """Whether a run's configuration is that of an imported log."""
    return isinstance(config.get(IMPORTED), Mapping)


def has_times(config: Mapping[str, Any]) -> bool:
    """Whether the times of a run's steps are those of its training; a log without times has those of its import."""
    return not is_imported(config) or config[IMPORTED].get("timed") is not False


def is_reference(value: Any) -> bool:
    """Whether a value refers to other options, as in ${trainer.project_name}: what it is, is not known."""
    return isinstance(value, str) and "${" in value


def _config_name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_") if option.startswith("--") else option


def decimal_of(value: Any) -> Decimal | None:
    """Return a number exactly as it was written; None for what is none. YAML reads 1e-6 as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def decimal_text(number: Decimal) -> str:
    """Return all digits of a number: 0.05, 5e-7, 4096."""
    plain = number.normalize()
    if plain == 0:
        return "0"
    if -5 < plain.adjusted() < 16:
        return f"{plain:f}"
    mantissa, _, exponent = f"{plain:E}".partition("E")
    return f"{mantissa}e{int(exponent)}"


def plain_value(value: Any) -> str:
    """Return a value as values are compared: without quotes and case; a list joined by spaces, a number in full."""
    if isinstance(value, list | tuple):
        return " ".join(plain_value(item) for item in value)
    text = str(value).strip().strip("\"'").casefold()
    if text == "none":
        return "null"
    if " " in text:
        return " ".join(plain_value(item) for item in text.split())
    number = decimal_of(text)
    return text if number is None else decimal_text(number)


def config_number(config: Mapping[str, Any], option: str) -> float | None:
    """Return the number of an option as a float; strings such as "1e-6", which YAML reads as text, are numbers too."""
    number = decimal_of(config_value(config, option))
    return None if number is None else float(number)


REPLAY_OPTIONS = ("router_replay", "router_replay.mode", "actor_rollout_ref.actor.megatron.router_replay.mode")
REPLAYS = (True, "R2", "R3")
EXPERT_OPTIONS = ("num_experts", "n_routed_experts", "moe", "actor_rollout_ref.model.num_experts")
QUANTISATION_OPTIONS = (
    *("quantization", "rollout_quantization", "actor_rollout_ref.rollout.quantization"),
    *("kv_cache_dtype", "rollout_dtype", "fp8"),
)
TEMPERATURE_OPTIONS = (
    *("temperature", "actor_rollout_ref.rollout.temperature", "generator.sampling_params.temperature"),
    *("gconfig.temperature", "rollout_temperature"),
)


def facts_of(config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a configuration declares: `replay_declared` and `noisy` (experts, FP8), 1 each, and `temperature`."""
    experts = (config_value(config, option) for option in EXPERT_OPTIONS)
    formats = (config_value(config, option) for option in QUANTISATION_OPTIONS)
    has_experts = any(given is True or ((n := decimal_of(given)) is not None and n > 1) for given in experts)
    declared = {
        "replay_declared": any(config_value(config, option) in REPLAYS for option in REPLAY_OPTIONS),
        "noisy": has_experts or any(given is True or "fp8" in str(given).lower() for given in formats),
    }
    facts = {name: 1.0 for name, is_declared in declared.items() if is_declared}
    given = (decimal_of(config_value(config, option)) for option in TEMPERATURE_OPTIONS)
    temperature = next((float(value) for value in given if value), None)
    return facts if temperature is None else {**facts, "temperature": temperature}
