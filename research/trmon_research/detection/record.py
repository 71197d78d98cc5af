"""Record runs: train them with the real client, which writes to a spool in place of a service."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import trmon_client as trmon
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import train_experiment
from trmon.lab.grpo.injections import Injection, Onset, injected
from trmon_client.core import wire
from trmon_research.detection.faults import InjectedFault
from trmon_research.detection.recorded_run import PROJECT, RecordedCourse, RunName, messages_in, write_course
from trmon_research.detection.sums_trainer import SumsConfig, SumsTrainer

SUMS, LAB = "sums", "lab"
LAB_HEALTHY = "healthy"
FAST_LR = 6e-4
"""The learning rate at which a lag of 24 updates matters, and a policy finds in 220 steps that length is paid."""
SPECIAL_CONFIGS: Mapping[InjectedFault, Mapping[str, Any]] = {
    InjectedFault.TEMPERATURE: {"n_prompts": 16},
    InjectedFault.LR: {"n_minibatches": 4},
    InjectedFault.STALE: {"learning_rate": FAST_LR},
    InjectedFault.STALE_RAMP: {"learning_rate": FAST_LR},
    InjectedFault.LENGTH: {"learning_rate": FAST_LR},
}
"""What differs from `SumsConfig` in the runs of a fault, from their first step on."""


@dataclass(frozen=True, slots=True)
class LabStep:
    """One step of the lab, under the names that a course has."""

    reward: float
    true_reward: float
    grad_norm: float


def names_of(n_runs: int, n_healthy: int, *, testbed: str) -> Iterator[RunName]:
    """Yield the runs of a testbed: `n_runs` of each fault and `n_healthy` of each healthy kind, by seed."""
    if testbed == LAB:
        kinds = [(LAB_HEALTHY, n_healthy), *((injection.name, n_runs) for injection in Injection)]
    else:
        kinds = [(fault.name, n_healthy if fault.is_healthy else n_runs) for fault in InjectedFault]
    for seed in range(max(n_runs, n_healthy)):
        yield from (RunName(testbed, kind, seed) for kind, n in kinds if seed < n)


def record_all(names: Iterable[RunName], cache: Path, *, n_steps: int, jobs: int) -> Iterator[RunName]:
    """Record the runs that are not in the cache, in separate processes, and yield each when it is there."""
    missing = []
    for name in names:
        if RecordedCourse.open(name, cache) is None:
            missing.append(name)
        else:
            yield name
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(record_run, name, cache, n_steps=n_steps): name for name in missing}
        for future in as_completed(futures):
            future.result()
            yield futures[future]


def record_run(name: RunName, cache: Path, *, n_steps: int) -> None:
    """Train one run and write what its client spooled. Errors: RuntimeError if the client lost a message."""
    torch.set_num_threads(1)
    folder = cache / str(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    monitor = trmon.init(project=PROJECT, run=str(name), spool_dir=folder, world_size=1, rank=0, attempt="a")
    if name.testbed == LAB:
        lab = lab_config(name, n_steps=n_steps)
        found = [LabStep(step.reward, step.reward, step.grad_norm) for step in train_experiment(lab, monitor)]
        onset, settings = Onset().step, {"seed": name.seed}
    else:
        config = sums_config(name, n_steps=n_steps)
        found = list(SumsTrainer(config, monitor).steps())
        onset, settings = config.onset_step, {**asdict(config), "fault": name.kind}
    monitor.close(timeout=None)
    if is_lossy(folder):
        raise RuntimeError(f"{name}: the client lost messages; fewer --jobs keep its queue from filling")
    write_course(name, cache, onset_step=onset, steps=found, settings=settings)


def is_lossy(folder: Path) -> bool:
    """Whether the client that wrote a spool dropped a message, as its last message says."""
    last = list(messages_in(folder))[-1]
    return bool(wire.decode(last, media_type=wire.MSGPACK).losses.dropped)


def sums_config(name: RunName, *, n_steps: int) -> SumsConfig:
    """Return the configuration of a run of the second testbed."""
    fault = InjectedFault[name.kind]
    return SumsConfig(fault, seed=name.seed, n_steps=n_steps, **SPECIAL_CONFIGS.get(fault, {}))


def lab_config(name: RunName, *, n_steps: int) -> ExperimentConfig:
    """Return the configuration of a run of the lab."""
    injection = None if name.kind == LAB_HEALTHY else Injection[name.kind]
    return injected(injection, seed=name.seed, n_steps=n_steps)
