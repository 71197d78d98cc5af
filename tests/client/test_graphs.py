"""Autograd graphs: neither a decision nor the queue keeps a graph alive that the trainer has dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.batch_decision import BatchDecision, DecidedBatch
from trmon_client.config.settings import Mode
from trmon_client.core import statistics
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset
from trmon_client.error_guard import ErrorGuard, LossCounter, RejectedSteps, WarnOnce
from trmon_client.monitor import Monitor
from trmon_client.process.process_end import ProcessEnd
from trmon_client.sending import messages
from trmon_client.sending.encoder import PendingMessage
from trmon_client.sending.messages import ChunkCounter

CU_SEQLENS = [0, 6, 12, 18, 24]
VOCABULARY = 5


class Saved:
    """The data that a graph keeps for its backward pass."""


class Identity(torch.autograd.Function):
    """Returns its input, with a graph that holds `saved`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, saved: Saved) -> torch.Tensor:
        ctx.saved_for_test = saved
        return tensor.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return *gradients, None


class Graphs:
    """Makes tensors with graphs and counts the graphs that are alive."""

    def __init__(self) -> None:
        self.made: list[ref[Saved]] = []

    def on(self, values: Any) -> torch.Tensor:
        """Return a tensor of the values that has a graph of its own."""
        saved = Saved()
        self.made.append(ref(saved))
        leaf = torch.as_tensor(np.asarray(values), dtype=torch.float32).requires_grad_()
        found: torch.Tensor = Identity.apply(leaf, saved)  # type: ignore[no-untyped-call]
        return found

    @property
    def n_alive(self) -> int:
        return sum(made() is not None for made in self.made)


def padded(graphs: Graphs) -> dict[str, Any]:
    return {name: graphs.on(array) for name, array in batch(far=(1,), dead=(2,)).items()}


def views(graphs: Graphs) -> dict[str, Any]:
    """A view keeps its base, also one that was made without gradients."""
    given = padded(graphs)
    with torch.no_grad():
        return {name: tensor[:, :] for name, tensor in given.items()}


def ragged(graphs: Graphs) -> dict[str, Any]:
    return {name: [graphs.on(row) for row in array] for name, array in batch(far=(1,), dead=(2,)).items()}


def scattered(graphs: Graphs) -> dict[str, Any]:
    """Lists of sequences that are lists of tensors of one number."""
    given = batch(far=(1,), dead=(2,))
    return {name: [[graphs.on(value) for value in row] for row in array] for name, array in given.items()}


def packed(graphs: Graphs) -> dict[str, Any]:
    given = {name: graphs.on(array.reshape(-1)) for name, array in batch(far=(1,), dead=(2,)).items()}
    return given | {"cu_seqlens": torch.tensor(CU_SEQLENS)}


def labelled(graphs: Graphs) -> dict[str, Any]:
    return padded(graphs) | {"advantages": graphs.on(np.ones(4)), "rewards": graphs.on(np.ones(4))}


def with_logits(graphs: Graphs) -> dict[str, Any]:
    logits = {name: graphs.on(np.zeros((4, 6, VOCABULARY))) for name in ("rollout_logits", "logits")}
    return padded(graphs) | logits


def refused(graphs: Graphs) -> dict[str, Any]:
    """Return invalid arguments, which get a neutral decision."""
    return padded(graphs) | {"mask": graphs.on(np.ones((4, 5)))}


FORMS = {form.__name__: form for form in (views, ragged, scattered, packed, labelled, with_logits, refused)}


def read(decision: BatchDecision) -> list[Any]:
    """Return everything that a decision computes."""
    lazy = (decision.mask, decision.accepted, decision.token_mask, decision.weights)
    return [*lazy, decision.signals, decision.reasons, decision.mask_rate, decision.policy]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize(("mode", "policy"), [("observe", None), ("enforce", None), ("enforce", "tis")])
def test_no_decision_keeps_a_graph(
    tmp_path: Path, form: Callable[[Graphs], dict[str, Any]], mode: str, policy: str | None
) -> None:
    graphs, monitor = Graphs(), Monitor(settings(tmp_path, mode=mode, policy=policy))
    monitor.log_batch(step=0, **batch())
    given = form(graphs)
    unread, decision = (monitor.log_batch(step=step, **given) for step in (1, 2))
    said = read(decision)
    assert graphs.n_alive > 0
    del given
    assert graphs.n_alive == 0
    assert [str(value) for value in read(unread)] == [str(value) for value in said]
    assert (decision.token_mask is None) == (form is refused)
    monitor.close()


@pytest.mark.parametrize("policy", ["trm", "tis"])
def test_a_decision_keeps_the_mask_but_none_of_the_log_probs(tmp_path: Path, policy: str) -> None:
    monitor = Monitor(settings(tmp_path, mode="enforce", policy=policy))
    given = {name: np.array(array) for name, array in batch(far=(1,)).items()} | {"mask": np.ones((4, 6), bool)}
    mask = given["mask"]
    made = [ref(array) for name, array in given.items() if name != "mask"]
    decision = monitor.log_batch(step=0, **given)
    monitor.close()
    del given
    assert [array() for array in made] == [None, None]
    assert decision.token_mask.shape == mask.shape


class Meter:
    """A trainer's number that holds the tensor it comes from."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __float__(self) -> float:
        return float(self.tensor.detach())


def of_scalars(graphs: Graphs) -> PendingMessage:
    loss = graphs.on(0.5)
    values: Mapping[str, Any] = {"loss": loss, "meter": Meter(graphs.on(1.5)), "several": [graphs.on(2.5)]}
    return messages.scalars_message(0, values, sequence=0, losses=LossCounter())


def of_an_error(graphs: Graphs) -> PendingMessage:
    def train() -> None:
        loss = graphs.on(0.5)
        raise FloatingPointError(f"the loss is {loss.item()}")

    try:
        train()
    except FloatingPointError as error:
        return messages.finish_message(ProcessEnd.by_exception(error), sequence=0, finished=[])
    raise AssertionError("it trained")


def of_a_report(graphs: Graphs) -> PendingMessage:
    inputs = check_inputs(**labelled(graphs))
    columns = statistics.columns_of_inputs(inputs)
    decision = decide(columns, preset("trm"))
    return messages.report_message(
        DecidedBatch(inputs, {}, {}, columns, decision, None),
        chunk=ChunkCounter().next(0, None, chunks=None),
        mode=Mode.ENFORCE,
        scalars={"loss": graphs.on(0.5)},
        on_finite=lambda _: None,
        on_values=lambda *_: None,
        error_guard=ErrorGuard(),
        rejected=RejectedSteps(WarnOnce()),
    )


@pytest.mark.parametrize("leave", [of_a_report, of_scalars, of_an_error])
def test_a_queued_message_keeps_no_graph(leave: Callable[[Graphs], PendingMessage]) -> None:
    graphs = Graphs()
    draft = leave(graphs)
    assert graphs.made
    assert graphs.n_alive == 0
    assert draft.size_bytes > 0
