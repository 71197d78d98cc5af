"""Which tokens of a call count, kept for the token masks that a decision computes when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, check_inputs
from trmon_client.core.inputs.labels import TurnInputs
from trmon_client.core.inputs.tokens import InputLayout


@dataclass(frozen=True, slots=True)
class CountedTokens:
    """The trainer's mask, bool [B, T], the layout in which the trainer passed it, and the turns if given."""

    mask: Array
    layout: InputLayout
    turns: TurnInputs | None = None

    @classmethod
    def of(cls, inputs: CheckedInputs) -> CountedTokens:
        """Return the mask, the layout and the turns of checked arguments."""
        return cls(inputs.mask, inputs.layout, inputs.turns)


def checked_on_read(arguments: Mapping[str, Any]) -> Callable[[], CountedTokens]:
    """Return a function that checks the arguments when it is called, for calls that decide nothing.

    It keeps the arguments without their autograd graphs, which would live as long as the decision.
    """
    tokens = {name: _detached(arguments.get(name)) for name in (*POLICIES, "mask", "cu_seqlens")}
    return lambda: CountedTokens.of(check_inputs(**tokens))


def _detached(value: Any) -> Any:
    """Return an argument without its autograd graph; None where detaching fails."""
    if isinstance(value, (list, tuple)):
        is_of_numbers = not value or isinstance(value[0], (float, int))
        return value if is_of_numbers else [_detached(row) for row in value]
    # Detaching each of a thousand rows costs milliseconds, and most have no graph.
    if not (getattr(value, "requires_grad", False) and is_tensor(value)):
        return value
    try:
        return value.detach()
    except (TypeError, RuntimeError):
        return None
