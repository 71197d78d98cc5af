"""The statistics of each batch: its columns, and the divergences that its logits allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import Backend, exact, topk_lower_bound, with_divergences
from trmon_client.core.inputs.checked_inputs import CheckedInputs, valid_tokens
from trmon_client.core.kernel_launches import StillCompiling, compiling_elsewhere
from trmon_client.core.statistics import columns_of_inputs

LOGITS = ("rollout_logits", "logits", "old_logits")
REQUESTS = ("tv", "sum_pi_squared")
"""The columns of exact divergences that are computed on request."""


def given_logits(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what gives divergences, unchecked, among the local names of a function with these arguments."""
    values = {name: names[name] for name in (*LOGITS, "rollout_topk", "divergences", *REQUESTS)}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def attach_divergences(
    columns: Columns, *, inputs: CheckedInputs, logits: Mapping[str, Any], backend: Backend = "blocks"
) -> Columns:
    """Return the columns with the divergences that the given logits allow; unchanged without logits.

    Args: inputs: the arguments that the columns were reduced from; logits: `given_logits`; backend: of exact
    divergences.
    Errors: ValueError naming the argument that is missing or wrong.
    """
    given = dict(logits)
    requests = {name: given.pop(name) for name in REQUESTS if name in given}
    if requests and "rollout_logits" not in given:
        raise ValueError(f"{next(iter(requests))} needs rollout_logits and the trainer's logits")
    if not given:
        return columns
    if "divergences" in given:
        return _with_computed(columns, given)
    if inputs.layout.is_packed:
        raise ValueError(f"{next(iter(given))} cannot be given with cu_seqlens; expected [B, T] log-probs with logits")
    sides: dict[str, Any] = {name: given[name] for name in LOGITS[1:] if name in given}
    mask = valid_tokens(inputs)
    if "rollout_logits" in given:
        found = exact(rollout_logits=given["rollout_logits"], **sides, mask=mask, backend=backend, **requests)
        return with_divergences(columns, found)
    return with_divergences(columns, _lower_bounds(given, sides=sides, inputs=inputs, mask=mask))


def _with_computed(columns: Columns, given: Mapping[str, Any]) -> Columns:
    """Return the columns with divergences that the trainer computed, as its ranks that share a vocabulary do."""
    others = given.keys() - {"divergences"}
    if others:
        raise ValueError(f"divergences and {min(others)} are both given; expected one of them")
    divergences = given["divergences"]
    if not isinstance(divergences, Columns):
        raise ValueError(
            f"divergences is {type(divergences).__name__}; expected what divergence.exact_streamed returns"
        )
    return with_divergences(columns, divergences)


def _lower_bounds(given: Mapping[str, Any], *, sides: Mapping[str, Any], inputs: CheckedInputs, mask: Array) -> Columns:
    if "rollout_topk" not in given or inputs.token_ids is None:
        raise ValueError(f"{next(iter(given))} needs rollout_logits, or rollout_topk=(ids, logprobs) and token_ids")
    topk_ids, topk_logprobs = given["rollout_topk"]
    return topk_lower_bound(
        topk_ids=topk_ids,
        topk_logprobs=topk_logprobs,
        rollout_logprobs=inputs.logprobs.get("rollout_logprobs"),
        token_ids=inputs.token_ids,
        **sides,
        mask=mask,
    )


TRITON_BY_DEFAULT = False
"""Whether kernels are used without a request: not before docs/benchmarks.md has a run of these on a device."""
NOT_ON_CUDA = "triton=True applies to batches on a CUDA device only; this one is reduced without compiled kernels"


class BatchStatistics:
    """Columns and divergences of batches, on the device that holds them.

    Batches on a CUDA device are reduced by kernels of Triton once a thread has compiled them for their kind of input;
    until then, where they fail, and elsewhere, by plain NumPy or torch. A failure is said once.
    """

    def __init__(self, *, triton: bool | None, warn: Callable[[str, str], object]) -> None:
        """Args: triton: whether to use kernels, None by default; warn: called with a key and a line, in any thread."""
        self._is_asked_for = triton is True
        self._uses_kernels = triton if triton is not None else TRITON_BY_DEFAULT and find_spec("triton") is not None
        self._warn = warn

    def of(self, inputs: CheckedInputs, *, logits: Mapping[str, Any]) -> Columns:
        """Return the columns of a batch, with the divergences that its logits allow. Args: logits: `given_logits`.

        Errors: ValueError naming the argument that is missing or wrong.
        """
        columns = self._reduced(lambda backend: columns_of_inputs(inputs, backend=backend), [inputs.mask])
        sides = [logits[name] for name in LOGITS if name in logits]
        # What the kernel of divergences lacks: sums of squares, other devices, float64 and float8.
        is_known = all(_is_on_cuda(one) and one.itemsize in (2, 4) for one in sides)
        is_taken = is_known and not logits.get("sum_pi_squared")
        return self._reduced(
            lambda backend: attach_divergences(columns, inputs=inputs, logits=logits, backend=backend),
            sides if is_taken else [],
        )

    def _reduced(self, reduce: Callable[[Backend], Columns], arrays: Sequence[Any]) -> Columns:
        """Return what a function computes, by kernels if they are compiled and all of the arrays are on CUDA."""
        if not (self._uses_kernels and arrays):
            return reduce("blocks")
        if not all(map(_is_on_cuda, arrays)):
            if self._is_asked_for:
                self._warn("compiled on the host", NOT_ON_CUDA)
            return reduce("blocks")
        try:
            with compiling_elsewhere():
                return reduce("triton")
        except StillCompiling:
            return reduce("blocks")
        except Exception as error:  # noqa: BLE001  whatever a compiler meets, training continues without it
            failure = error
        # A wrong argument raises here again.
        columns = reduce("blocks")
        # Memory that was short for one batch may suffice for the next.
        self._uses_kernels = type(failure).__name__ == "OutOfMemoryError"
        text = f"compiled kernels are not used on the device: {type(failure).__name__}: {failure}"
        self._warn(f"compiled on the device {self._uses_kernels}", text)
        return columns


def _is_on_cuda(array: Any) -> bool:
    return is_tensor(array) and bool(array.is_cuda)
