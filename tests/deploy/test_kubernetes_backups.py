"""The commands of the jobs of deploy/kubernetes that back up and restore, run with their settings, user and volumes."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.image import Image
from tests.deploy.manifests import SECRETS, Json, containers
from tests.deploy.test_kubernetes_components import job_pods
from tests.fixtures import postgres
from tests.fixtures.postgres import Postgres
from tests.store.builders import append, report_intake, start_intake, stored_reports
from trmon.store import Store

UID = 10001
BACKUP = "/backup"
SQLITE = {"TRMON_DATA_DIR": Image.read().environment["TRMON_DATA_DIR"]}


def run_job(overlay: str, name: str, root: Path) -> None:
    """Run the containers of a job in order, in folders in place of its volumes; raises for the first that fails.

    A container of PostgreSQL runs as the pod's user, of whom the machine knows no name.
    """
    [pod] = [pod for known, pod in job_pods(overlay) if known == name]
    for container in containers(pod):
        is_ours = container["image"].startswith("trmon:")
        _run(container, root, uid=None if is_ours or os.geteuid() else UID, environment=SQLITE if is_ours else {})


def _run(container: Json, root: Path, *, uid: int | None, environment: dict[str, str]) -> None:
    folders = "|".join(mount["mountPath"] for mount in container["volumeMounts"])
    given = environment | {variable["name"]: variable["value"] for variable in container.get("env", ())}

    def here(text: str) -> str:
        return re.sub(folders, lambda found: f"{root}{found[0]}", text)

    done = subprocess.run(
        [here(word) for word in (*container["command"], *container.get("args", ()))],
        env={
            "PATH": f"{Path(sys.prefix) / 'bin'}:{postgres.binaries()}:/usr/bin:/bin",
            **{name: here(value) for name, value in given.items()},
        },
        user=uid,
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def volume(root: Path, path: str) -> Path:
    """Make a folder in place of a volume, which its pod may write to."""
    folder = Path(f"{root}{path}")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    for above in folder.relative_to(root).parents:
        (root / above).chmod(0o755)
    return folder


def fill(url: str) -> None:
    store = Store.open(url)
    store.migrate()
    append(store, start_intake(), *(report_intake(step=step) for step in range(3)))
    store.close()


def add(url: str, *, step: int) -> None:
    store = Store.open(url)
    append(store, report_intake(step=step))
    store.close()


def steps(url: str) -> list[int]:
    store = Store.open(url)
    store.check()
    found = [stored.report.step for stored in stored_reports(store, 1)]
    store.close()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder in place of a pod's root, which every user may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


@pytest.mark.server("postgres")
def test_a_fleet_is_restored_from_the_dump_of_its_job(postgres_server: Postgres, root: Path) -> None:
    backups, secrets = volume(root, BACKUP), volume(root, SECRETS)
    used, empty = postgres_server.database(), postgres_server.database()
    fill(used)
    (secrets / "database_url").write_text(used.replace("postgresql:", "postgresql+psycopg:") + "\n")
    run_job("fleet", "trmon-backup", root)
    add(used, step=3)
    [dump] = backups.iterdir()
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600

    with pytest.raises(RuntimeError, match="already exists"):
        run_job("fleet", "trmon-restore", root)
    assert steps(used) == [0, 1, 2, 3]
    (secrets / "database_url").write_text(empty)
    run_job("fleet", "trmon-restore", root)
    assert steps(empty) == [0, 1, 2]
    add(empty, step=4)
    for url in (used, empty):
        postgres_server.drop(url)


@pytest.mark.server("postgres")
def test_a_dump_that_fails_leaves_the_last_one(postgres_server: Postgres, root: Path) -> None:
    backups, secrets = volume(root, BACKUP), volume(root, SECRETS)
    used = postgres_server.database()
    fill(used)
    (secrets / "database_url").write_text(used)
    run_job("fleet", "trmon-backup", root)
    [dump] = backups.iterdir()
    before = dump.read_bytes()
    postgres_server.drop(used)
    with pytest.raises(RuntimeError, match="does not exist"):
        run_job("fleet", "trmon-backup", root)
    assert dump.read_bytes() == before


def test_an_embedded_service_is_restored_from_the_copy_of_its_job(root: Path) -> None:
    backups, data = volume(root, BACKUP), volume(root, SQLITE["TRMON_DATA_DIR"])
    url = f"sqlite:///{data}/trmon.sqlite"
    fill(url)
    run_job("embedded", "trmon-backup", root)
    add(url, step=3)
    [copy] = backups.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    run_job("embedded", "trmon-backup", root)  # as on the same day of the next week
    assert list(backups.iterdir()) == [copy]
    add(url, step=4)
    run_job("embedded", "trmon-restore", root)
    assert steps(url) == [0, 1, 2, 3]
    assert steps(f"{url}.replaced-1") == [0, 1, 2, 3, 4]
