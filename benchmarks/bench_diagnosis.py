"""Measures the diagnosis: trains and diagnoses every injection of the lab; prints the confusion matrix in Markdown.

python -m benchmarks.bench_diagnosis --seeds 0 1 2

Each run is diagnosed twice: with the router's flip rate, as the lab logs it, and without it, as in most trainers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np

from tests.fixtures.lab import PROJECT, diagnosed
from tests.fixtures.service import ThreadedService
from trmon.domain.diagnosis import Diagnosis, History, diagnose
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.identity import RunKey
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.store import Store
from trmon.views.recent_history import recent_rows

STEPS = 110
FLIPS = "router_flip_rate"


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its injection, its seed and its two diagnoses."""

    injected: str
    seed: int
    with_flips: Diagnosis
    without_flips: Diagnosis
    onset_step: int


def main() -> None:
    """Train, diagnose, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        service = ThreadedService(Path(folder), log_level="error")
        with service.client() as client:
            for seed in seeds:
                cases += list(_cases(client, service, seed=seed))
        service.stop()
    print(f"\n{STEPS} steps, onset at {cases[0].onset_step}, seeds {', '.join(map(str, seeds))}\n")
    _confusion(cases)
    _details(cases)


def _cases(client: httpx.Client, service: ThreadedService, *, seed: int) -> Iterator[Case]:
    for injection in (None, *Injection):
        config = LabConfig.healthy(seed) if injection is None else LabConfig.injected(injection, seed)
        config = replace(config, n_steps=STEPS)
        name = f"{injection.value if injection else 'healthy'}-{seed}"
        began = time.perf_counter()
        diagnosed(client, config, name=name)
        history = _history(service.app.state.components.store, name)
        blind = History(history.steps, {key: column for key, column in history.values.items() if key != FLIPS})
        print(f"{name}: {time.perf_counter() - began:.0f} s")
        yield Case(name.rpartition("-")[0], seed, diagnose(history), diagnose(blind), config.onset_step)


def _history(store: Store, name: str) -> History:
    run = store.runs.get(RunKey(PROJECT, name), access=EVERYTHING)
    return recent_rows(store, run, access=EVERYTHING)


def _confusion(cases: list[Case]) -> None:
    """Print injections against diagnoses, in numbers of runs."""
    for title, pick in (("with the flip rate", "with_flips"), ("without it", "without_flips")):
        counts = Counter((case.injected, getattr(case, pick).primary.value) for case in cases)
        columns = sorted({named for _, named in counts})
        print(f"| injected, {title} | " + " | ".join(columns) + " |")
        print("| --- |" + " ---: |" * len(columns))
        for injected in dict.fromkeys(case.injected for case in cases):
            cells = (str(counts[injected, named] or "") for named in columns)
            print(f"| {injected} | " + " | ".join(cells) + " |")
        print()


def _details(cases: list[Case]) -> None:
    """Print the detection delay and the findings besides the cause."""
    print("| injected | first seen, steps after onset | also seen | quadrant |")
    print("| --- | --- | --- | --- |")
    for injected in dict.fromkeys(case.injected for case in cases):
        of = [case for case in cases if case.injected == injected and case.with_flips.observed]
        delays = [case.with_flips.observed[0].since_step - case.onset_step for case in of]
        beside = Counter(seen.finding.value for case in of for seen in case.with_flips.observed[1:])
        quadrants = Counter(case.with_flips.quadrant.value for case in of)
        spans = f"{np.min(delays)} to {np.max(delays)}" if delays else ""
        print(f"| {injected} | {spans} | {_counted(beside)} | {_counted(quadrants)} |")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({n})" for name, n in counts.most_common())


if __name__ == "__main__":
    main()
