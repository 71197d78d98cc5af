"""The checkpoints that a trainer of TRL saves, reported as they are saved."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received, run_ranks
from trmon_client.core import wire


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
