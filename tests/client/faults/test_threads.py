"""Many threads that call one monitor at once: every call arrives once, and training beside them is untouched."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.faults.tiny_trainer import N_UPDATES, STEPS, train
from tests.client.server import Peer
from tests.client.trainer import batch, settings
from trmon_client.core import wire
from trmon_client.monitor import Monitor

N_THREADS = 8
N_CALLS = 25
ROOMY = {"queue_reports": 100_000}


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    """Let the interpreter switch threads after almost every operation."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], object]) -> None:
    """Do the work in N_THREADS threads that start together, each with its index; raise what they raise."""
    ready = threading.Barrier(N_THREADS)

    def run(index: int) -> None:
        ready.wait()
        work(index)

    with ThreadPoolExecutor(N_THREADS) as threads:
        list(threads.map(run, range(N_THREADS)))


def test_each_call_of_one_update_is_one_counted_chunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer() as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url, limits=ROOMY))
        arguments = batch()

        def work(index: int) -> None:
            for call in range(N_CALLS):
                monitor.log_batch(step=0, update=0, **arguments)
                monitor.log_scalars(0, {f"thread_{index}_{call}": 1.0})

        at_once(work)
        monitor.close(timeout=None)
    (finish,) = peer.of(wire.Finish)
    assert sorted(report.chunk for report in peer.of(wire.Report)) == list(range(N_THREADS * N_CALLS))
    assert finish.finished == [wire.ChunkCount(0, 0, N_THREADS * N_CALLS)]
    names = Counter(name for message in peer.of(wire.Scalars) for name in message.values)
    assert names == {f"thread_{index}_{call}": 1 for index in range(N_THREADS) for call in range(N_CALLS)}
    assert len({message.sequence for message in peer.of(wire.Scalars)}) == N_THREADS * N_CALLS
    assert (finish.losses.dropped, finish.losses.warnings) == ({}, {})
    assert capsys.readouterr().err.count("step 0; pairs total") == 1


def test_threads_at_different_steps_get_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer() as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url, limits=ROOMY))
        arguments = batch()
        at_once(lambda index: [monitor.log_batch(step=index, **arguments) for _ in range(N_CALLS)])
        monitor.close(timeout=None)
    (finish,) = peer.of(wire.Finish)
    chunks = Counter((report.step, report.chunk) for report in peer.of(wire.Report))
    assert chunks == {(step, chunk): 1 for step in range(N_THREADS) for chunk in range(N_CALLS)}
    assert finish.losses.dropped == {}
    assert list(finish.losses.warnings) == ["step_went_back"]
    assert capsys.readouterr().err.count("pass a counter that never falls") == 1


def test_training_beside_threads_that_log_is_untouched(tmp_path: Path, untouched: str) -> None:
    with Peer() as peer:
        monitor, ends = Monitor(settings(tmp_path, url=peer.url, limits=ROOMY)), threading.Event()
        n_logged = Counter[int]()

        def work(index: int) -> None:
            while index and not ends.wait(0.001):
                monitor.log_scalars(0, {f"thread_{index}": n_logged[index]})
                n_logged[index] += 1
            if not index:
                assert train(monitor) == untouched
                ends.set()

        at_once(work)
        monitor.close(timeout=None)
    assert peer.steps == [step for step in range(STEPS) for _ in range(N_UPDATES)]
    logged = [next(iter(message.values.items())) for message in peer.of(wire.Scalars)]
    of_threads = [(name, value) for name, value in logged if name != "loss"]
    assert len(of_threads) == len(set(of_threads)) == n_logged.total()
    assert peer.of(wire.Finish)[0].losses.dropped == {}


@pytest.mark.slow
def test_the_threads_of_a_forked_child_share_one_launch(tmp_path: Path) -> None:
    with Peer() as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url, limits=ROOMY))
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    at_once(lambda index: monitor.log_scalars(index, {"child": 1.0}))
                    monitor.close(timeout=None)
                finally:
                    os._exit(sys.exc_info()[0] is not None)
            assert os.waitpid(child, 0)[1] == 0
        monitor.close()
    per_launch = Counter(message.launch for message in peer.of(wire.Scalars))
    assert list(per_launch.values()) == [N_THREADS] * 20
