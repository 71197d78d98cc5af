"""Reads the tokens of a batch, given padded, ragged or packed, as padded [B, T] arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trmon_client.core.arrays.backend import Array, Device
from trmon_client.core.arrays.conversion import argument_to_computable, devices_of, dtype_kind
from trmon_client.core.inputs import packed
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.inputs.ragged import is_ragged, pad_rows, row_mask, to_rows


@dataclass(frozen=True)
class TokenInputs:
    """Log-probs by argument name and the mask, [B, T] on one device, and the layout in which they were given."""

    logprobs: dict[str, Array]
    mask: Array
    layout: InputLayout


def read_token_inputs(given: dict[str, Any], *, mask: Any, cu_seqlens: Any, device: Device) -> TokenInputs:
    """Return the given log-probs, if any, and the mask, padded.

    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    if cu_seqlens is not None:
        tokens = _from_packed(given, mask, cu_seqlens, device)
    elif any(isinstance(value, (list, tuple)) for value in given.values()) or (not given and is_ragged(mask)):
        tokens = _from_ragged(given, mask, device)
    else:
        tokens = _from_arrays(given, mask, device)
    _check_tokens(tokens.logprobs, tokens.mask)
    return tokens


def device_of(given: dict[str, Any]) -> Device:
    """Return the CUDA device of the tensors among the arguments; None for the host.

    Errors: ValueError if they are on several devices.
    """
    devices = devices_of(row for value in given.values() for row in (value if is_ragged(value) else [value]))
    if len(devices) > 1:
        where = ", ".join(f"{name} on {value.device}" for name, value in given.items() if hasattr(value, "device"))
        raise ValueError(f"log-probs and mask are on several devices ({where}); expected one")
    return devices[0] if devices else None


def _from_arrays(given: dict[str, Any], mask: Any, device: Device) -> TokenInputs:
    padded = {name: argument_to_computable(name, value, device) for name, value in given.items()}
    if mask is None and not given:
        raise ValueError("neither log-probs nor a mask are given; expected mask=, set where a token counts")
    if mask is None:
        shape = tuple(next(iter(padded.values())).shape)
        raise ValueError(f"mask is None; expected a mask of shape {shape}, set where a token counts")
    whole = argument_to_computable("mask", mask, device)
    return TokenInputs(padded, whole, InputLayout(whole.shape[-1] if whole.ndim else 0))


def _from_packed(given: dict[str, Any], mask: Any, cu_seqlens: Any, device: Device) -> TokenInputs:
    lengths = packed.lengths_of(cu_seqlens)
    flat = {name: argument_to_computable(name, value, device) for name, value in given.items()}
    if mask is not None:
        flat["mask"] = argument_to_computable("mask", mask, device)
    for name, array in flat.items():
        if tuple(array.shape) != (sum(lengths),):
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected ({sum(lengths)},) by cu_seqlens")
    padded = {name: packed.pad_packed(array, lengths=lengths) for name, array in flat.items()}
    whole, counted = row_mask(lengths, device), padded.pop("mask", None)
    layout = InputLayout(max(lengths, default=0), tuple(lengths), is_packed=True)
    return TokenInputs(padded, whole if counted is None else whole & (counted != 0), layout)


def _from_ragged(given: dict[str, Any], mask: Any, device: Device) -> TokenInputs:
    for name, value in given.items():
        if not is_ragged(value):
            form = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else "a list of numbers"
            raise ValueError(f"{name} is {form}; expected a list of 1-D arrays, one for each sequence, like the others")
    rows = {name: to_rows(name, value, device) for name, value in (given or {"mask": mask}).items()}
    first = next(iter(rows))
    like = (first, [len(row) for row in rows[first]])
    padded = {name: pad_rows(name, rows[name], like=like) for name in given}
    layout = InputLayout(max(like[1], default=0), tuple(like[1]))
    if mask is None:
        return TokenInputs(padded, row_mask(like[1], device), layout)
    if not is_ragged(mask):
        raise ValueError(f"mask is an array; expected a list of 1-D arrays like {first}, or None if all tokens count")
    return TokenInputs(padded, pad_rows("mask", to_rows("mask", mask, device), like=like), layout)


def _check_tokens(logprobs: dict[str, Array], mask: Array) -> None:
    (first, reference), *rest = {**logprobs, "mask": mask}.items()
    shape = tuple(reference.shape)
    if len(shape) != 2:
        raise ValueError(f"{first} has shape {shape}; expected two dimensions, [sequences, tokens]")
    for name, array in rest:
        if tuple(array.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape} like {first}")
    for name, array in logprobs.items():
        if dtype_kind(array) != "f":
            raise ValueError(f"{name} has dtype {array.dtype}; expected a floating dtype")
    if dtype_kind(mask) not in "bif":
        raise ValueError(f"mask has dtype {mask.dtype}; expected booleans, integers or floats")
