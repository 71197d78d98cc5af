"""Pruner: deletes old reports, survives failures, and stops in time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Semaphore
from time import sleep

from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.bootstrap.housekeeping import Pruner, RetentionLimits
from trmon.store.repositories.retention import Pruned

RUN = "/api/v1/runs/math/grpo"


def test_old_reports_are_deleted_and_their_batches_are_kept(serve: Serve) -> None:
    service = serve(retention_run_bytes=0, retention_every_seconds=0.05)
    with service.client() as client:
        train(client, steps=range(3))
        eventually(lambda: client.get(f"{RUN}/batches/0/sequences").status_code, lambda status: status == 404)
        assert client.get(f"{RUN}/batches/0").json()["signals"]["total_kl_k3"] is not None
        assert 'trmon_pruned_total{what="reports"}' in client.get("/metrics").text


def test_a_failure_is_counted_and_retried() -> None:
    counted: dict[str, int] = {}
    tried = Semaphore(0)

    class FullDisk:
        def prune(self, **_: object) -> Pruned:
            tried.release()
            raise OSError("no space left on device")

    limits = RetentionLimits(max_age_seconds=1.0, max_bytes_per_run=1, max_bytes=1, max_audit_age_seconds=1.0)
    pruner = Pruner(
        FullDisk(),
        limits=limits,
        every_seconds=0.001,
        clock=lambda: 0.0,
        count=lambda name, n: counted.update({name: counted.get(name, 0) + n}),
    )
    pruner.start()
    assert tried.acquire(timeout=10)
    assert tried.acquire(timeout=10)
    pruner.close()
    assert counted["failures"] >= 2
    assert "reports" not in counted


def test_close_does_not_wait_for_a_long_pruning() -> None:
    started = Event()

    class Endless:
        def prune(self, *, may_continue: Callable[[], bool], **_: object) -> Pruned:
            started.set()
            while may_continue():
                sleep(0.001)
            return Pruned(reports=0, events=0, deliveries=0, silences=0, audit=0)

    limits = RetentionLimits(max_age_seconds=1.0, max_bytes_per_run=1, max_bytes=1, max_audit_age_seconds=1.0)
    pruner = Pruner(Endless(), limits=limits, every_seconds=60.0, clock=lambda: 0.0, count=lambda *_: None)
    pruner.start()
    assert started.wait(10)
    pruner.close()
