"""The statistics of a batch: by compiled kernels where the trainer asked for them and they work, else without."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import settings, spooled
from trmon_client import batch_statistics
from trmon_client.batch_decision import BatchDecision
from trmon_client.batch_statistics import BatchStatistics
from trmon_client.config.settings import resolve_settings
from trmon_client.core import wire
from trmon_client.core.column_schema import REFERENCE_STEMS
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import exact_streamed
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.kernel_launches import launch
from trmon_client.core.statistics import columns_of_inputs
from trmon_client.monitor import Monitor


@dataclass
class Kernels:
    """Kernels of a device that fail, and what is tried."""

    error: Exception
    tried: list[str] = field(default_factory=list)

    def reduce(self, inputs: CheckedInputs, *, backend: str) -> Columns:
        self.tried.append(backend)
        if backend == "triton":
            raise self.error
        return columns_of_inputs(inputs)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Take tensors of the host for tensors of a device, on which no kernel can be compiled."""
    found = Kernels(RuntimeError("no C compiler"))
    monkeypatch.setattr(batch_statistics, "_is_on_cuda", lambda array: isinstance(array, torch.Tensor))
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", found.reduce)
    return found


def inputs_of(logp: Any) -> CheckedInputs:
    given = check_inputs(rollout_logprobs=logp, logprobs=logp, mask=logp < 0)
    return given.mapped(torch.as_tensor) if isinstance(logp, torch.Tensor) else given


BATCH = -torch.rand((2, 3), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("error", [RuntimeError("no C compiler"), ValueError("cannot be accessed")], ids=str)
def test_a_kernel_that_fails_is_tried_once_and_named(error: Exception, kernels: Kernels) -> None:
    kernels.error = error
    warnings: list[tuple[str, str]] = []
    statistics = BatchStatistics(triton=True, warn=lambda *warning: warnings.append(warning))
    found = [statistics.of(inputs_of(BATCH), logits={}) for _ in range(2)]
    assert [columns.n_sequences for columns in found] == [2, 2]
    assert kernels.tried == ["triton", "blocks", "blocks"]
    expected = f"compiled kernels are not used on the device: {type(error).__name__}: {error}"
    assert [text for _, text in warnings] == [expected]


def test_a_kernel_that_lacks_memory_is_tried_again(kernels: Kernels) -> None:
    kernels.error = torch.OutOfMemoryError("no room")
    warnings: dict[str, str] = {}
    statistics = BatchStatistics(triton=True, warn=warnings.setdefault)
    for _ in range(2):
        statistics.of(inputs_of(BATCH), logits={})
    assert kernels.tried == ["triton", "blocks", "triton", "blocks"]
    assert len(warnings) == 1


def test_kernels_are_tried_on_request_only(kernels: Kernels) -> None:
    for triton in (None, False):
        BatchStatistics(triton=triton, warn=pytest.fail).of(inputs_of(BATCH), logits={})
    assert kernels.tried == ["blocks", "blocks"]


def test_a_wrong_argument_is_no_failure_of_the_kernel(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", lambda inputs, **_: columns_of_inputs(inputs))
    statistics = BatchStatistics(triton=True, warn=pytest.fail)
    with pytest.raises(ValueError, match="tv needs rollout_logits"):
        statistics.of(inputs_of(BATCH), logits={"tv": True})
    assert not kernels.tried


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (torch.bfloat16, {}, "triton"),
        (torch.float32, {"tv": True}, "triton"),
        (torch.float64, {}, "blocks"),
        (torch.float8_e4m3fn, {}, "blocks"),
        (torch.float32, {"sum_pi_squared": True}, "blocks"),
    ],
    ids=str,
)
def test_logits_that_the_kernel_cannot_read_are_left_to_torch(
    dtype: torch.dtype, options: dict[str, Any], expected: str, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", lambda inputs, **_: columns_of_inputs(inputs))
    monkeypatch.setattr(
        batch_statistics, "attach_divergences", lambda columns, *, backend, **_: used.append(backend) or columns
    )
    logits = torch.zeros(2, 3, 5).to(dtype)
    statistics = BatchStatistics(triton=True, warn=pytest.fail)
    statistics.of(inputs_of(BATCH), logits={"rollout_logits": logits, "logits": logits, **options})
    assert used == [expected]
    assert not kernels.tried


class Compiler:
    """A kernel of which each kind takes until `finish` to compile."""

    def __init__(self) -> None:
        self.finish = threading.Event()
        self.compiled: list[str] = []
        self.launched = 0

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **_: Any) -> Any:
        assert not any(isinstance(one, torch.Tensor) for one in arguments), "no memory of the trainer is kept"
        assert self.finish.wait(30)
        self.compiled.append(threading.current_thread().name)
        return {(*grid, 1, 1)[:3]: self}

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*_: Any, **__: Any) -> None:
            self.launched += 1

        return run

    def reduce(self, inputs: CheckedInputs, *, backend: str) -> Columns:
        if backend == "triton":
            (logp, *_), n = inputs.logprobs.values(), inputs.mask.shape[1]
            launch(self, (2,), [logp, n], {"TILE": 4}, on_device=nullcontext)
        return columns_of_inputs(inputs)


@pytest.fixture
def compiler(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    found = Compiler()
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", found.reduce)
    return found


def wait_for_compilers() -> None:
    for thread in threading.enumerate():
        if thread.name == "trmon-compiler":
            thread.join(30)


def test_a_kernel_is_compiled_in_a_thread_and_used_from_then_on(compiler: Compiler) -> None:
    statistics = BatchStatistics(triton=True, warn=pytest.fail)
    for _ in range(3):
        assert statistics.of(inputs_of(BATCH), logits={}).n_sequences == 2
    assert (compiler.compiled, compiler.launched) == ([], 0), "the trainer's thread waits for nothing"
    compiler.finish.set()
    wait_for_compilers()
    for _ in range(3):
        statistics.of(inputs_of(BATCH), logits={})
    assert (compiler.compiled, compiler.launched) == (["trmon-compiler"], 3)


@pytest.mark.parametrize("n", [4, 16, 1])
def test_each_kind_of_input_is_compiled_once(n: int, compiler: Compiler) -> None:
    compiler.finish.set()
    statistics = BatchStatistics(triton=True, warn=pytest.fail)
    for given in (BATCH, BATCH, -torch.rand((2, n)), -torch.rand((2, 2 * n if n > 1 else 1)), BATCH.double()):
        statistics.of(inputs_of(given), logits={})
        wait_for_compilers()
    assert len(compiler.compiled) == {4: 2, 16: 3, 1: 3}[n], (
        "3 and 4 tokens are of a kind; 16 and 1 are not, nor float64"
    )


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        (None, None, None),
        (None, "0", False),
        (None, "1", True),
        (True, "0", False),
        (True, "", True),
        (False, "1", False),
    ],
)
def test_the_variable_precedes_the_argument_to_turn_kernels_off(
    argument: bool | None, value: str | None, expected: bool | None
) -> None:
    environment = {"TRMON_PROJECT": "math", "TRMON_RUN": "one"} | ({} if value is None else {"TRMON_TRITON": value})
    assert resolve_settings({"triton": argument}, environment=environment).triton is expected


def test_a_batch_of_the_host_is_reduced_without_kernels_and_said_so_once(kernels: Kernels) -> None:
    warnings: dict[str, str] = {}
    statistics = BatchStatistics(triton=True, warn=warnings.setdefault)
    for _ in range(2):
        statistics.of(inputs_of(-np.ones((2, 3))), logits={})
    assert kernels.tried == ["blocks", "blocks"]
    assert list(warnings.values()) == [batch_statistics.NOT_ON_CUDA]


B, T, V = 4, 6, 50
ILL = 2
"""The sequence whose policies differ at one token."""


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    out: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def batch() -> dict[str, Any]:
    """Return log-probs of sampled tokens and the logits they come from; one token's policies are far apart."""
    random = np.random.default_rng(0)
    rollout = random.normal(0.0, 2.0, (B, T, V))
    policy = rollout + random.normal(0.0, 1e-4, rollout.shape)
    policy[ILL, 3] = random.normal(0.0, 2.0, V)
    ids = random.integers(0, V, (B, T))
    picked = {
        name: np.take_along_axis(log_softmax(logits), ids[..., None], -1)[..., 0]
        for name, logits in (("rollout_logprobs", rollout), ("logprobs", policy))
    }
    return {**picked, "mask": np.ones((B, T), bool), "rollout_logits": rollout, "logits": policy, "token_ids": ids}


def decided(tmp_path: Path, given: dict[str, Any]) -> tuple[BatchDecision, Columns]:
    """Return the decision on a batch, and its columns."""
    with Monitor(settings(tmp_path, policy="trm_max")) as monitor:
        decision = monitor.log_batch(step=0, **given)
    return decision, decision.columns


def test_with_logits_the_policy_decides_by_the_exact_kl_and_the_report_says_so(tmp_path: Path) -> None:
    given = batch()
    p, q = log_softmax(given["rollout_logits"]), log_softmax(given["logits"])
    kl = (np.exp(p) * (p - q)).sum(axis=-1)
    decision, columns = decided(tmp_path, given)
    assert decision.reasons == [None, None, "max_kl", None]
    np.testing.assert_allclose(columns["max_kl"], kl.max(axis=-1), rtol=1e-5)
    assert not {"sum_tv", "sum_pi_squared"} & columns.keys()
    _, more = decided(tmp_path / "more", {**given, "tv": True, "sum_pi_squared": True, "advantages": np.ones(B)})
    assert {"sum_tv", "sum_pi_squared"} <= more.keys()
    (report,) = (message for message in spooled(tmp_path) if isinstance(message, wire.Report))
    assert (report.kl_is, report.kl_pair) == ("exact", "total")
    np.testing.assert_array_equal(wire.unpack_columns(report)["max_kl"], columns["max_kl"])


def test_with_the_engines_top_k_the_kl_is_a_certified_lower_bound(tmp_path: Path) -> None:
    given = batch()
    logprobs = log_softmax(given.pop("rollout_logits"))
    ids = np.argsort(-logprobs, axis=-1)[..., :8]
    decision, columns = decided(tmp_path, {**given, "rollout_topk": (ids, np.take_along_axis(logprobs, ids, -1))})
    assert (columns.kl_is, columns.kl_pair) == ("lower_bound", "total")
    assert decision.reasons[ILL] == "max_kl"


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
def test_divergences_computed_elsewhere_take_the_place_of_logits(tmp_path: Path, *, is_packed: bool) -> None:
    given = batch()
    sides = {name: given.pop(name) for name in ("rollout_logits", "logits")}
    computed = exact_streamed(**sides, mask=given["mask"])
    if is_packed:
        given = {name: given[name].reshape(-1) for name in ("rollout_logprobs", "logprobs")}
        given["cu_seqlens"] = np.arange(B + 1) * T
    decision, columns = decided(tmp_path, {**given, "divergences": computed})
    assert decision.reasons == [None, None, "max_kl", None]
    assert (columns.kl_is, columns.kl_pair) == ("exact", "total")
    np.testing.assert_array_equal(columns["sum_kl"], computed["sum_kl"])


NONE = dict.fromkeys(("rollout_logits", "logits"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollout_logits": None, "token_ids": None}, "logits needs rollout_logits, or rollout_topk"),
        ({"logits": None}, "logits"),
        ({"tv": True, **NONE}, "tv needs rollout_logits and the trainer's logits"),
        ({"divergences": {}, **NONE}, "divergences is dict; expected what"),
        ({"divergences": {}}, "divergences and logits are both given"),
    ],
)
def test_what_cannot_be_computed_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with Monitor(settings(tmp_path)) as monitor, pytest.raises(ValueError, match=message):
        monitor.log_batch(step=0, **{**batch(), **change})


def test_the_kl_to_a_reference_policy_is_reported_and_decides_nothing(tmp_path: Path) -> None:
    given = batch()
    decision, columns = decided(tmp_path, {**given, "ref_logprobs": given["logprobs"] - 0.5})
    without, plain = decided(tmp_path, given)
    np.testing.assert_allclose(columns["sum_ref_d"], np.full(B, -0.5 * T))
    assert decision.reasons == without.reasons
    assert columns.keys() - plain.keys() == {*REFERENCE_STEMS}
