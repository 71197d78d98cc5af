"""Random pages of a running service's SQLite file are damaged: nothing acknowledged is lost without a word."""

from __future__ import annotations

import gc
import random
import shutil
from pathlib import Path

import pytest

from benchmarks.load.connection import Connection
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.service import ThreadedService
from tests.store.builders import stored_reports
from trmon.bootstrap.doctor import check_installation
from trmon.config.settings import Settings
from trmon.domain.health_check import HealthLevel
from trmon.store import Store
from trmon.store.maintenance.backup import back_up
from trmon.store.maintenance.restore import restore_backup
from trmon_client.core import wire

WORKLOAD = Workload(n_runs=2, n_ranks=1, n_sequences=16, drift_from=10)
BEFORE_BACKUP, BEFORE_DAMAGE, AFTER_DAMAGE = range(50), range(50, 60), range(60, 80)
SECTOR_BYTES = 512
DAMAGE_CHECKS = ("database", "schema", "integrity", "reports")
SEEDS = (0, 5, 9)
"""Of damage: to a report, a page of the tree, or what is not read again; which of them differs from run to run."""


def send(service: ThreadedService, steps: range) -> set[tuple[str, int]]:
    """Send each report once; return the run and step of those that are acknowledged."""
    connection, acknowledged = Connection(service.url), set()
    for step in steps:
        for run in range(WORKLOAD.n_runs):
            name = WORKLOAD.run(run)
            body = WORKLOAD.report(run, step=step, rank=0)
            answer = connection.post(f"/api/v1/runs/{PROJECT}/{name}/reports", body, content_type=wire.MSGPACK)
            assert answer.status in (200, 503), answer
            if answer.status == 200:
                acknowledged.add((name, step))
    connection.close()
    return acknowledged


def damage(path: Path, chance: random.Random) -> None:
    """Overwrite one random sector of a file with random bytes."""
    sector = chance.randrange(path.stat().st_size // SECTOR_BYTES)
    with path.open("r+b") as file:
        file.seek(sector * SECTOR_BYTES)
        file.write(chance.randbytes(SECTOR_BYTES))


def stored(data_dir: Path) -> set[tuple[str, int]]:
    """Return the run and step of each report that can be read with its sequences."""
    store = Store.open(Settings(data_dir=data_dir).store_url)
    found = set()
    for run in store.run_log.unfinished_runs():
        for one in stored_reports(store, run.id):
            found.add((run.key.run, one.report.step))
    store.close()
    return found


def failing_checks(data_dir: Path) -> dict[str, str]:
    """Return what `trmon doctor` says about damage."""
    results = check_installation(Settings(data_dir=data_dir))
    return {one.name: one.detail for one in results if one.name in DAMAGE_CHECKS and one.level is HealthLevel.FAIL}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a service with reports of two runs."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    service = ThreadedService(folder)
    send(service, BEFORE_BACKUP)
    service.stop()
    return folder


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_sector_is_named_by_doctor_and_a_backup_restores_what_it_held(
    filled: Path, tmp_path: Path, seed: int
) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(filled, data_dir)
    url, path = Settings(data_dir=data_dir).store_url, data_dir / "trmon.sqlite"
    service = ThreadedService(data_dir)
    back_up(url, backup)
    held = stored(data_dir)
    acknowledged = held | send(service, BEFORE_DAMAGE)
    damage(path, random.Random(seed))
    acknowledged |= send(service, AFTER_DAMAGE)
    service.stop()
    wrong = failing_checks(data_dir)
    if not wrong:
        assert stored(data_dir) >= acknowledged
    gc.collect()  # errors of a damaged file keep this process's connections to it, which would end with the process
    restore_backup(url, backup)
    assert not failing_checks(data_dir)
    assert stored(data_dir) == held
    service = ThreadedService(data_dir)
    again = send(service, BEFORE_DAMAGE)
    service.stop()
    assert stored(data_dir) == held | again
    assert len(again) == WORKLOAD.n_runs * len(BEFORE_DAMAGE)
