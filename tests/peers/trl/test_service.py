"""Trainers of TRL that report to a real service, on one rank and on two."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests.fixtures.waiting import eventually
from tests.peers.trl.conftest import run_ranks

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
