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
    """Return a policy: a preset, one with bounds such as `trm_max(delta=0.02)`, or JSON. Errors: InvalidInput."""
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


STEPS = re.compile(r"(?=.)(\d{0,18})(:?)((?<=:)\d{0,18})?")


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last step of A:B, or of one step A; None leaves an end open. Errors: InvalidInput."""
    match = STEPS.fullmatch(text)
    if match is None:
        raise InvalidInput("--steps", f"must be A:B, A:, :B or A, not {text!r:.64}")
    first, colon, last = match.groups()
    ends = int(first) if first else None, int(last) if last else None
    return ends if colon else (ends[0], ends[0])
