"""Trainers of TRL that report to a real service, on one rank and on two, and the checkpoints that they save."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests.docs.code_blocks import Block, holding
from tests.fixtures.waiting import eventually
from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received, run_ranks
from trmon_client.core import wire
from trmon_client.integrations.trl import attach

RUN = "/api/v1/runs/math/tiny"
TRAINER = """
import json, sys
from pathlib import Path

import torch

from tests.peers.trl import tiny
from trmon_client.integrations.trl import attach

folder, is_attached = Path(sys.argv[1]), sys.argv[2] == "attached"
given = {"per_device_train_batch_size": int(sys.argv[3]), "num_generations": 4, "num_iterations": 2}
trainer = tiny.grpo(folder, sampler=tiny.noisy, **given)
if is_attached:
    attach(trainer, project="math", run="tiny")
trainer.train()
if trainer.accelerator.is_main_process:
    torch.save(trainer.model.state_dict(), folder / f"{sys.argv[2]}.pt")
    (folder / "history.json").write_text(json.dumps(trainer.state.log_history))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


def train(folder: Path, *, url: str, how: str, ranks: int) -> str:
    """Train in processes of their own, and return what they wrote to stderr."""
    return run_ranks(TRAINER, folder, how, str(12 // ranks), url=url, ranks=ranks, timeout_seconds=300)


def state_of(folder: Path, how: str) -> dict[str, Any]:
    """Return the parameters after training."""
    return dict(torch.load(folder / f"{how}.pt"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_is_whole_in_the_service(tmp_path: Path, service: httpx.Client, ranks: int) -> None:
    url = str(service.base_url).rstrip("/")
    assert train(tmp_path, url=url, how="attached", ranks=ranks).count("trmon:") == 1
    eventually(lambda: service.get(RUN).json()["state"], lambda state: state == "finished")
    batches = eventually(
        lambda: service.get(f"{RUN}/batches", params={"limit": 500}).json()["items"], lambda items: len(items) == 4
    )
    assert sorted((batch["step"], batch["update"]) for batch in batches) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert {(batch["complete"], batch["n_sequences"]) for batch in batches} == {(True, 12)}

    history = json.loads((tmp_path / "history.json").read_text())
    first = next(batch for batch in batches if (batch["step"], batch["update"]) == (0, 0))
    assert first["signals"]["reward_mean"] == pytest.approx(history[0]["reward"])
    assert first["signals"]["mismatch_abs_log_ratio_max"] == pytest.approx(1e-3, rel=0.1)
    sequences = service.get(f"{RUN}/batches/0/sequences", params={"update": 0, "limit": 500}).json()
    assert Counter(sequences["columns"]["group_id"]) == dict.fromkeys(range(3), 4)

    train(tmp_path, url=url, how="alone", ranks=ranks)
    attached, alone = state_of(tmp_path, "attached"), state_of(tmp_path, "alone")
    assert all(torch.equal(attached[name], alone[name]) for name in alone)


def saved(received: Received) -> list[tuple[int, str, list[int]]]:
    told = [pause.checkpoint for pause in received.of(wire.Pause)]
    return [(one.step, one.path, one.deleted) for one in told if isinstance(one, wire.SavedCheckpoint)]


def test_checkpoints_are_reported_with_their_paths_and_those_that_trl_deletes(
    tmp_path: Path, received: Received
) -> None:
    trainer = tiny.grpo(tmp_path, max_steps=6, save_strategy="steps", save_steps=2, save_total_limit=2)
    received.train(trainer)
    # Beside those of the first training, transformers may delete the first one of the second before it is reported.
    trainer.args.output_dir = str(tmp_path / "again")
    received.train(trainer)
    folders = [str(tmp_path / "out" / f"checkpoint-{step}") for step in (2, 4, 6)]
    told = saved(received)
    assert [(step, path) for step, path, _ in told[:3]] == [*zip((1, 3, 5), folders, strict=True)], "batches begin at 0"
    assert {step for _, _, deleted in told[:3] for step in deleted} <= {1}
    assert told[2][2] == [1]
    assert len(told) == 6, "attached twice, each checkpoint is reported once"
    assert {start.config["launch"]["reports_checkpoints"] for start in received.of(wire.Start)} == {True}


FAULTY = """
import json, sys
from pathlib import Path

import torch

from tests.peers.trl import tiny
from trmon_client.integrations.trl import attach

folder, ill_from = Path(sys.argv[1]), int(sys.argv[2])
told = []


class DroppingTrainer(tiny.SamplingTrainer):
    def _logprobs(self, prompt, completion):
        found = super()._logprobs(prompt, completion)
        return found if self.state.global_step < ill_from else found * (torch.arange(len(found)) % 2)

    def _save_checkpoint(self, model, trial):
        saved.append(self.state.global_step)
        super()._save_checkpoint(model, trial)


def on_incident(incident):
    told.append([trainer.state.global_step, incident["title"], incident["last_good_step"], incident["checkpoint_path"]])
    trainer.control.should_training_stop = True


saved = []
given = {"max_steps": 60, "save_strategy": "steps", "save_steps": 5, "save_total_limit": 3, "learning_rate": 1e-4}
per_rank = 8 // int(sys.argv[3])
trainer = tiny.grpo(folder, kind=DroppingTrainer, sampler=tiny.noisy, per_device_train_batch_size=per_rank, **given)
attach(trainer, project="math", run="tiny", checkpoint_on_warning=True, on_incident=on_incident)
trainer.train()
steps = trainer.state.global_step
(folder / f"told-{trainer.accelerator.process_index}.json").write_text(json.dumps([told, saved, steps]))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""
ILL_FROM = 13


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_faulty_run_saves_a_checkpoint_at_the_warning_and_is_stopped(
    tmp_path: Path, service: httpx.Client, ranks: int
) -> None:
    url = str(service.base_url).rstrip("/")
    run_ranks(FAULTY, tmp_path, str(ILL_FROM), str(ranks), url=url, ranks=ranks, timeout_seconds=500)
    of_ranks = [json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(ranks)]
    assert all(one == of_ranks[0] for one in of_ranks), "all ranks are told, and save, at the same steps"
    told, saved, steps = of_ranks[0]
    ((at, title, last_good, path),) = told
    assert title == "corrupt log-probs"
    assert ILL_FROM <= at < 60
    assert abs(last_good - (ILL_FROM - 1)) <= 1
    assert path == str(tmp_path / "out" / f"checkpoint-{5 * ((last_good + 1) // 5)}")
    extra = [step for step in saved if step % 5]
    assert len(extra) == 1 or at % 5 == 0
    assert all(ILL_FROM <= step <= at for step in extra)
    assert steps == at


@pytest.mark.parametrize("block", holding("attach(trainer, "), ids=str)
def test_the_code_of_the_page_reports_a_run(
    block: Block, tmp_path: Path, service: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(service.base_url).rstrip("/")
    monkeypatch.setenv("TRMON_URL", url)
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    code = block.text.replace("http://127.0.0.1:8642", url)
    # The page leaves the arguments out.
    names = {"attach": attach, "GRPOTrainer": lambda **_: tiny.grpo(tmp_path), "trainer": tiny.grpo(tmp_path)}
    exec(code, names)
    if "trainer.train()" not in code:
        names["trainer"].train()
    run = "/api/v1/runs/math/qwen3-8b-grpo"
    eventually(lambda: service.get(run).json().get("state"), lambda state: state == "finished")
