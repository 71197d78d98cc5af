"""The logits of two policies: checked, read in blocks, or projected from hidden states; never copied as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trmon_client.core.arrays import Array, Device, devices_of, dtype_kind, functions_of, is_tensor, to_computable
from trmon_client.core.column_schema import Pair

BLOCK_ELEMENTS = 1 << 16
"""Logits of a block on the CPU: half a megabyte as float64, so that all temporaries stay in the cache of a core."""
DEVICE_BLOCK_ELEMENTS = 1 << 20
"""Logits of a block on a device: 8 MiB as float64, enough to hide most kernel launches."""

Block = tuple[slice, slice]
"""A slice of sequences and a slice of positions."""


@dataclass(frozen=True)
class CheckedLogits:
    """Checked logits [B, T, V] by argument name, as they were given; mask bool [B, T], numpy or on the device.

    `support` is bool [V] or [B, T, V], as given; `device` is None on the host, where numpy computes.
    """

    by_name: dict[str, Array]
    mask: Array
    device: Device
    support: Array | None = None

    @property
    def vocabulary(self) -> int:
        """The size V of the vocabulary."""
        return int(next(iter(self.by_name.values())).shape[-1])

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks; short sequences are not split, and the host skips blocks without a counting token."""
        n_sequences, horizon = self.mask.shape
        n_positions = (BLOCK_ELEMENTS if self.device is None else DEVICE_BLOCK_ELEMENTS) // self.vocabulary
        n_rows = max(1, n_positions // max(1, horizon))
        n_columns = max(1, min(n_positions, horizon))
        for row in range(0, n_sequences, n_rows):
            for column in range(0, horizon, n_columns):
                block = slice(row, row + n_rows), slice(column, column + n_columns)
                if self.device is not None or self.mask[block].any():
                    yield block

    def read(self, name: str, block: Block) -> Array:
        """Return the logits of a block as float64, -inf outside the support."""
        logits = to_computable(self.by_name[name][block], self.device)
        xp = functions_of(logits)
        wide = xp.cast(logits, "f8")
        if self.support is None:
            return wide
        support = self.support[block] if self.support.ndim == 3 else self.support
        return xp.where(to_computable(support, self.device), wide, -np.inf)


def check_logits(given: dict[str, Any], *, mask: Any, support: Any = None) -> CheckedLogits:
    """Return the checked logits, mask and support.

    Args: given: torch or numpy arrays [B, T, V] of one shape with any floating dtypes and strides; mask, support: as
        for `divergence.exact`.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    by_name = {name: _array(name, value) for name, value in given.items()}
    (first, reference), *rest = by_name.items()
    shape = tuple(reference.shape)
    for name, array in rest:
        if tuple(array.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape} like {first}")
    devices = devices_of([*by_name.values(), support])
    if len(devices) > 1:
        where = ", ".join(f"{name} on {array.device}" for name, array in by_name.items() if is_tensor(array))
        raise ValueError(f"logits and support are on several devices ({where}); expected one")
    device = devices[0] if devices else None
    mask = per_token("mask", mask, shape=shape[:2], device=device, kinds="bif")
    mask = mask if dtype_kind(mask) == "b" else mask != 0
    return CheckedLogits(by_name, mask, device, _support(support, shape=shape, device=device))


ROLLOUT = "rollout_logits"
KL_PAIRS: dict[str, Pair] = {"logits": "total", "old_logits": "mismatch"}
"""The pair of the KL to rollout_logits, by the argument of the trainer's logits."""
GAP_SIDES = {"tv_mismatch": (ROLLOUT, "old_logits"), "tv_staleness": ("old_logits", "logits")}
"""The logits whose total variation is that of a gap; the logits of all three policies are given for them."""


def trainer_sides(*, logits: Any, old_logits: Any) -> dict[str, Any]:
    """Return the given logits of the trainer by argument; the KL is of the first. Errors: ValueError without any."""
    given = {"logits": logits, "old_logits": old_logits}
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        raise ValueError("logits (KL of total) or old_logits (KL of mismatch) is required; got neither")
    return found


def variations_of(names: Collection[str], *, tv: bool) -> dict[str, tuple[str, str]]:
    """Return the logits of each total variation to compute by its quantity: that of the KL, and those of the gaps.

    Args: names: of the given logits, in the order of `trainer_sides` after the rollout's.
    """
    target = next(name for name in names if name != ROLLOUT)
    return ({"tv": (ROLLOUT, target)} if tv else {}) | (GAP_SIDES if len(names) > 2 else {})


def per_token(name: str, value: Any, *, shape: tuple[int, ...], device: Device, kinds: str) -> Array:
    """Return an argument with values for each token, in numpy or on the device.

    Args: kinds: the allowed kinds of `arrays.dtype_kind`.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    if value is None:
        raise ValueError(f"{name} is None; expected shape {shape}")
    array = to_computable(value, device)
    if tuple(array.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape}")
    if dtype_kind(array) not in kinds:
        expected = {"i": "an integer dtype", "f": "a floating dtype"}.get(kinds, "booleans, integers or floats")
        raise ValueError(f"{name} has dtype {array.dtype}; expected {expected}")
    return array


def _array(name: str, value: Any) -> Array:
    axes = "[sequences, tokens, vocabulary]"
    if not is_tensor(value) and not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is {type(value).__name__}; expected a torch or numpy array {axes}")
    if hasattr(value, "full_tensor"):
        raise ValueError(f"{name} is distributed; expected .full_tensor(), or exact_streamed of .to_local()")
    if value.ndim != 3 or not value.shape[-1]:
        raise ValueError(f"{name} has shape {tuple(value.shape)}; expected {axes}")
    if dtype_kind(value) != "f":
        raise ValueError(f"{name} has dtype {value.dtype}; expected a floating dtype")
    return value.detach() if is_tensor(value) else value


def _support(support: Any, *, shape: tuple[int, ...], device: Device) -> Array | None:
    if support is None:
        return None
    array = support if is_tensor(support) else np.asarray(support)
    if tuple(array.shape) not in (shape[-1:], shape):
        raise ValueError(
            f"support has shape {tuple(array.shape)}; expected {shape[-1:]} or {shape} like rollout_logits"
        )
    if dtype_kind(array) != "b":
        raise ValueError(f"support has dtype {array.dtype}; expected booleans, set where a token can be sampled")
    return to_computable(array, device) if array.ndim == 1 else array


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


@dataclass(frozen=True)
class WholeLogits:
    """Logits [B, T, V] that the caller has; V may be this process's part of the vocabulary."""

    logits: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, V]."""
        return _shape(self.logits)

    @property
    def given(self) -> tuple[Any, ...]:
        """The arrays that they are read from."""
        return (self.logits,)

    def tile(self, positions: slice, vocabulary: slice, device: Device) -> Array:
        """Return logits [n, v] on the device; positions index [B T]. Other than contiguous logits are copied first."""
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


LogitSource: TypeAlias = WholeLogits | ProjectedLogits


def logit_source(name: str, value: Any) -> LogitSource:
    """Return the checked source of an argument's logits.

    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    if not isinstance(value, HiddenStates):
        return WholeLogits(_checked(name, value, axes=("B", "T", "V")))
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
