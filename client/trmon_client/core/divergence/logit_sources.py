"""Where the logits of one policy come from: an array of them, or hidden states and the weight of the output head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from trmon_client.core.arrays.backend import Array, Device, functions_of, is_tensor
from trmon_client.core.arrays.conversion import devices_of, dtype_kind, to_computable


@dataclass(frozen=True)
class HiddenStates:
    """The last hidden states of a policy, [B, T, H], and its output head.

    The logits are (hidden weight^T + bias)/temperature. `weight` is [V, H], and `bias` [V] or None; torch or numpy of
    any floating dtype. The product is computed in float32 at least, so it is more accurate than the logits of a model
    in half precision.
    """

    hidden: Any
    weight: Any
    bias: Any = None
    temperature: float = 1.0


class LogitSource(Protocol):
    """Logits that are read a tile at a time: some positions, and a part of the vocabulary."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, V], V of this process's part of the vocabulary."""
        ...

    @property
    def given(self) -> tuple[Any, ...]:
        """The arrays that they are read from."""
        ...

    def tile(self, positions: slice, vocabulary: slice, device: Device) -> Array:
        """Return logits [n, v] on the device; positions index [B T]."""
        ...


@dataclass(frozen=True)
class GivenLogits:
    """Logits [B, T, V] that the caller has."""

    logits: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, V]."""
        return _shape(self.logits)

    @property
    def given(self) -> tuple[Any, ...]:
        """The logits."""
        return (self.logits,)

    def tile(self, positions: slice, vocabulary: slice, device: Device) -> Array:
        """Return a tile of them; other than contiguous logits are copied first."""
        return to_computable(_flat(self.logits)[positions, vocabulary], device)


@dataclass(frozen=True)
class ProjectedLogits:
    """Logits that are projected from hidden states when a tile is read."""

    head: HiddenStates

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, V]."""
        n_sequences, horizon, _ = _shape(self.head.hidden)
        return n_sequences, horizon, int(self.head.weight.shape[0])

    @property
    def given(self) -> tuple[Any, ...]:
        """The hidden states, the weight and the bias."""
        return self.head.hidden, self.head.weight, self.head.bias

    def tile(self, positions: slice, vocabulary: slice, device: Device) -> Array:
        """Return the projection of some positions on a part of the vocabulary."""
        head = self.head
        hidden = _wide(to_computable(_flat(head.hidden)[positions], device))
        weight = _wide(to_computable(head.weight[vocabulary], device))
        if hidden.dtype != weight.dtype:
            hidden, weight = (functions_of(array).cast(array, "f8") for array in (hidden, weight))
        logits = hidden @ weight.T
        if head.bias is not None:
            logits = logits + to_computable(head.bias[vocabulary], device)
        return logits if head.temperature == 1.0 else logits / head.temperature


def logit_source(name: str, value: Any) -> LogitSource:
    """Return the checked source of an argument's logits.

    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    if not isinstance(value, HiddenStates):
        return GivenLogits(_checked(name, value, axes=("B", "T", "V")))
    hidden = _checked(f"{name}.hidden", value.hidden, axes=("B", "T", "H"))
    weight = _checked(f"{name}.weight", value.weight, axes=("V", "H"))
    if hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(f"{name}.weight has shape {tuple(weight.shape)}; expected (V, {hidden.shape[-1]}) like hidden")
    bias = None if value.bias is None else _checked(f"{name}.bias", value.bias, axes=("V",))
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise ValueError(f"{name}.bias has shape {tuple(bias.shape)}; expected ({weight.shape[0]},) like weight")
    if not value.temperature > 0:
        raise ValueError(f"{name}.temperature is {value.temperature!r}; expected a number above 0")
    return ProjectedLogits(HiddenStates(hidden, weight, bias, value.temperature))


def common_device(sources: dict[str, LogitSource]) -> Device:
    """Return the CUDA device of the sources; None for the host. Errors: ValueError if they are on several."""
    devices = devices_of(array for source in sources.values() for array in source.given)
    if len(devices) > 1:
        raise ValueError(f"{' and '.join(sources)} are on several devices ({devices}); expected one")
    return devices[0] if devices else None


def _checked(name: str, value: Any, *, axes: tuple[str, ...]) -> Array:
    if not hasattr(value, "shape") or len(value.shape) != len(axes):
        got = tuple(value.shape) if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"{name} is {got}; expected a torch or numpy array [{', '.join(axes)}]")
    if is_tensor(value) and hasattr(value, "full_tensor"):
        raise ValueError(f"{name} is distributed; expected .to_local() with its group")
    if dtype_kind(value) != "f":
        raise ValueError(f"{name} has dtype {value.dtype}; expected a floating dtype")
    return value.detach() if is_tensor(value) else value


def _shape(array: Array) -> tuple[int, int, int]:
    n_sequences, horizon, width = array.shape
    return int(n_sequences), int(horizon), int(width)


def _flat(array: Array) -> Array:
    return array.reshape(array.shape[0] * array.shape[1], array.shape[2])


def _wide(array: Array) -> Array:
    return array if array.itemsize >= 4 else functions_of(array).cast(array, "f4")
