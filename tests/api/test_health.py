"""Liveness and readiness probes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.fixtures.service import ServiceProcess, ThreadedService
from trmon.domain.errors import NotReady
from trmon.store import Store
from trmon.store.database.sqlite import check_disk_space


def test_without_its_worker_the_service_is_alive_but_not_ready(client: httpx.Client, service: ThreadedService) -> None:
    service.app.state.services.worker.close()
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "worker" in answer.json()["detail"]


def test_without_its_writer_the_service_accepts_no_messages(client: httpx.Client, service: ThreadedService) -> None:
    service.app.state.components.store.writer.close()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    refused = client.post("/api/v1/tokens", json={"name": "x", "scopes": ["read"]})
    assert refused.status_code == 503


def test_a_signal_shuts_the_service_down_cleanly(process: ServiceProcess) -> None:
    assert httpx.get(f"{process.url}/readyz", trust_env=False).status_code == 200
    assert process.stop() in (0, -15)
    assert not (process.data_dir / "trmon.sqlite-wal").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_on_a_full_disk_the_store_is_not_ready_until_there_is_space_again(small_disk: Path) -> None:
    store = Store.open(f"sqlite:///{small_disk}/trmon.sqlite")
    store.migrate()
    store.check()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    with pytest.raises(NotReady, match="No space left on device; free some space"):
        store.check()
    filler.unlink()
    store.check()
    store.close()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="No such file or directory"):
        check_disk_space(tmp_path / "gone")


@pytest.mark.parametrize("kept", [0, 8192], ids=["from its first page", "from its second page"])
def test_on_a_damaged_database_the_store_is_not_ready(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "trmon.sqlite"
    url = f"sqlite:///{path}"
    for _ in range(2):
        store = Store.open(url)
        store.migrate()
        store.check()
        store.close()
    intact = Store.open(url)
    path.write_bytes(path.read_bytes()[:kept] + os.urandom(path.stat().st_size - kept))
    with pytest.raises(NotReady, match=r"trmon.sqlite: .*; restore the newest backup"):
        intact.check()
    intact.close()
