"""Speeds of two trees side by side: python benchmarks/compare_trees.py OLD NEW [--repetitions 5] [NAME ...]

Each root has its own virtual environment in .venv. The measurements alternate between the trees, each in a fresh
process; printed are the medians and their ratio. On a busy machine only the ratio says something.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

N_CALLS, N_REPORTS, N_ALERTS = 200, 2000, 20


def command(*arguments: str) -> Callable[[], float]:
    """Return a measurement of a whole process of Python, in ms."""

    def measure() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return 1e3 * (time.perf_counter() - began)

    return measure


def log_batch() -> float:
    """Return the median of a call with 64 x 512 tokens, in ms, in the trainer's thread."""
    import torch

    import trmon_client as trmon

    torch.manual_seed(0)
    shape, taken = (64, 512), []
    with tempfile.TemporaryDirectory() as folder, trmon.init(project="p", run="r", spool_dir=folder) as monitor:
        for step in range(N_CALLS):
            pi = -torch.rand(shape)
            mu, mask = pi + 0.01 * torch.randn(shape), torch.ones(shape, dtype=torch.bool)
            began = time.perf_counter()
            monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=pi, logprobs=pi, mask=mask)
            taken.append(time.perf_counter() - began)
    return 1e3 * statistics.median(taken)


@contextmanager
def serving(**settings: Any) -> Iterator[Any]:
    """Run `trmon serve` over an empty database; yield the process."""
    from tests.fixtures.service import ServiceProcess

    with tempfile.TemporaryDirectory() as folder:
        process = ServiceProcess(Path(folder), log_level="error", **settings)
        try:
            yield process
        finally:
            process.stop()


def _message(step: int, **fields: Any) -> bytes:
    from tests.fixtures.messages import columns, report
    from trmon_client.core import wire

    return wire.encode(report(columns(64, seed=step % 8), step=step, chunks=1, **fields))


def _post(client: Any, body: bytes, *, run: str = "r") -> None:
    answer = client.post(f"/api/v1/runs/p/{run}/reports", content=body, headers={"Content-Type": "application/msgpack"})
    assert answer.status_code == 200, answer.text


def ingest() -> float:
    """Return the reports a second that a service takes of eight connections."""
    bodies = [_message(step) for step in range(N_REPORTS)]
    with serving() as process, process.client() as client, ThreadPoolExecutor(8) as senders:
        _post(client, _message(N_REPORTS))
        began = time.perf_counter()
        list(senders.map(lambda body: _post(client, body), bodies))
        return N_REPORTS / (time.perf_counter() - began)


def time_to_alert() -> float:
    """Return the median time from the report after which a rule fires to its webhook, in ms; a run for each."""
    from trace_files import RULE

    from tests.fixtures.receiver import WebhookServer

    with WebhookServer() as webhook, tempfile.NamedTemporaryFile("w", suffix=".yaml") as rules:
        rules.write(RULE)
        rules.flush()
        given = {"webhook_url": webhook.url, "webhook_allow_hosts": "127.0.0.1", "rules_file": rules.name}
        with serving(**given) as process, process.client() as client:
            return statistics.median(_time_of_alert(client, webhook, run=f"r{n}") for n in range(N_ALERTS))


def _time_of_alert(client: Any, webhook: Any, *, run: str) -> float:
    for step in range(5):
        _post(client, _message(step, run=run, scalars={"lr": 2.0 if step == 4 else 0.1}), run=run)
    time.sleep(0.7)  # until these are judged
    n, began = len(webhook.posted), time.monotonic()
    _post(client, _message(5, run=run, scalars={"lr": 2.0}), run=run)
    while len(webhook.posted) == n:
        time.sleep(0.0005)
    return 1e3 * (webhook.posted[n].at - began)


def _with_run(measure: Callable[[Any], float]) -> float:
    with serving() as process, process.client() as client:
        for step in range(30):
            _post(client, _message(step))
        time.sleep(2)
        return measure(process)


def first_view() -> float:
    """Return the time until a run's page has its heading and no placeholder, in ms, with an empty cache."""
    from tests.fixtures import browser

    def measure(process: Any) -> float:
        with browser.chromium() as chromium:
            tab = browser.visit(chromium, process.url)
            began = time.perf_counter()
            tab.go("/runs/p/r")
            return 1e3 * (time.perf_counter() - began)

    return _with_run(measure)


def top() -> float:
    """Return the time of `trmon top --once`, in ms."""
    return _with_run(lambda process: command("-m", "trmon", "top", "--once", "--url", process.url)())


MEASUREMENTS: dict[str, Callable[[], float]] = {
    "log_batch, ms": log_batch,
    "ingest, reports/s": ingest,
    "time to alert, ms": time_to_alert,
    "first view, ms": first_view,
    "trmon top, first frame, ms": top,
    "trmon --help, ms": command("-m", "trmon", "--help"),
    "import trmon_client, ms": command("-c", "import trmon_client"),
    "trmon_client.init, ms": command("-c", "import trmon_client; trmon_client.init"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", choices=MEASUREMENTS)
    given = parser.parse_args()
    if given.new is None:
        print(MEASUREMENTS[given.only]())
        return
    for name in [given.only] if given.only else MEASUREMENTS:
        found: list[tuple[Path, list[float]]] = [(root.resolve(), []) for root in (given.old, given.new)]
        for _ in range(given.repetitions):
            for root, values in found:
                values.append(_measured(root, name))
        old, new = (statistics.median(values) for _, values in found)
        print(f"{name:<28} {old:10.1f} {new:10.1f}   x {new / old:.2f}", flush=True)


def _measured(root: Path, name: str) -> float:
    """Measure once in a tree, with its own Python and packages."""
    python = root / ".venv" / "bin" / "python"
    child = [str(python), str(Path(__file__).resolve()), str(root), "--only", name]
    paths = f"{root}:{root / 'client'}"
    done = subprocess.run(
        child, cwd=root, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-2000:]
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
