"""Policies as written on the command line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from trmon.domain.errors import InvalidInput
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError

_MOVED = re.compile(r"(?P<name>\w+)\((?P<bounds>[^()]*)\)")


def parse_policy_argument(text: str) -> Policy:
    """Return a policy written as a preset, a preset with bounds such as `trm_max(delta=0.02)`, or JSON.

    Errors: InvalidInput, which names what is allowed.
    """
    try:
        moved = _MOVED.fullmatch(text.strip())
        if moved:
            return preset(moved["name"], **dict(_bound(part) for part in moved["bounds"].split(",")))
        return Policy.parse(_spec(text))
    except PolicyError as error:
        raise InvalidInput("--policy", str(error)) from error


def _spec(text: str) -> str | dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput("--policy", f"is not a JSON object: {error}") from error


def _bound(part: str) -> tuple[str, float]:
    name, _, number = part.partition("=")
    if name.strip() not in ("delta", "lower", "upper", "soft_tau"):
        raise InvalidInput(
            "--policy", f"bounds are delta, lower, upper and soft_tau, as in trm_max(delta=0.02), not {part!r}"
        )
    try:
        return name.strip(), float(number)
    except ValueError as error:
        raise InvalidInput("--policy", f"{part!r} must be a number, as in trm_max(delta=0.02)") from error
