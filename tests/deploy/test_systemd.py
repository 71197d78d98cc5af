"""The systemd unit: valid for the real systemd-analyze, and the service works under its restrictions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.deploy.confined import __file__ as CONFINED
from tests.deploy.confined import directives
from tests.deploy.image import ROOT, VENV
from tests.fixtures.prometheus import binary
from tests.fixtures.trainer import train
from trmon.config.settings import Settings

UNIT = (ROOT / "deploy" / "trmon.service").read_text()
COMMAND = f"{VENV}/bin/trmon serve"

pytestmark = pytest.mark.timeout(500)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts of its own need root")


@pytest.mark.server("systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "trmon.service"
    unit.write_text(UNIT.replace(COMMAND, "/bin/true"))
    done = subprocess.run(
        [binary("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_starts_the_installed_command_with_existing_settings() -> None:
    assert f"ExecStart={COMMAND}\n" in UNIT
    named = set(re.findall(r"(TRMON_[A-Z_]+)=", UNIT))
    assert named
    assert named <= {f"TRMON_{field.upper()}" for field in Settings.model_fields}


@pytest.mark.server("systemd-analyze")
def test_the_exposure_of_the_unit_is_under_two(tmp_path: Path) -> None:
    unit = tmp_path / "trmon.service"
    unit.write_text(UNIT)
    report = subprocess.run(
        [binary("systemd-analyze"), "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.returncode == 0, report.stdout[-200:] + report.stderr
    exposure = re.search(r"Overall exposure level for trmon\.service: ([\d.]+)", report.stdout)
    assert exposure is not None
    assert float(exposure[1]) < 2.0


PROBE = """
import ctypes, mmap, os, pathlib, socket, sys
def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "possible"
state, outside = map(pathlib.Path, sys.argv[1:])
(state / "kept").touch()
print(*map(refused, (
    (outside / "new").touch,
    lambda: os.chroot("/"),
    lambda: os.open("/proc/meminfo", os.O_RDONLY),
    lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
)))
print(oct((state / "kept").stat().st_mode & 0o777), (state / "kept").stat().st_uid)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:"))))
"""


@needs_root
@pytest.mark.server("systemd-analyze", "setpriv")
def test_the_confinement_holds(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    command = [*confined(state), sys.executable, "-c", PROBE, str(state), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    attempts, file, status = done.stdout.splitlines()
    assert attempts.split() == [
        *("OSError", "PermissionError", "FileNotFoundError", "PermissionError", "PermissionError"),
    ]
    assert file.split()[0] == "0o600"
    assert status.split() == ["0000000000000000", "1", "2"]


@needs_root
@pytest.mark.server("systemd-analyze", "setpriv")
def test_the_service_works_under_the_confinement_and_its_limits(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    service = [sys.executable, "-m", "trmon", "serve", "--port", "0", "--data-dir", str(state)]
    process = subprocess.Popen(
        [*confined(state), *service], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("trmon_url=").strip()
        with httpx.Client(base_url=url, timeout=30.0) as client:
            train(client, steps=range(5))
            assert "trmon_info" in client.get("/metrics").text
            assert client.get("/readyz").status_code == 200
        tasks, memory_bytes = used(process.pid)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode in (0, -15), err
    assert [path.stat().st_mode & 0o077 for path in state.iterdir()] == [0] * len(list(state.iterdir()))
    assert 0 < tasks < int(limit("TasksMax"))
    assert 0 < memory_bytes < int(limit("MemoryMax").removesuffix("G")) << 30


def confined(state: Path) -> list[str]:
    """Return the start of a command that confines the rest of it as the unit does."""
    return ["unshare", "--mount", "--propagation=private", sys.executable, str(CONFINED), str(state)]


def limit(name: str) -> str:
    [value] = directives(name)
    return value


def used(pid: int) -> tuple[int, int]:
    """Return the number of threads and the resident bytes of a process and its children."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid, *(int(child) for path in children for child in path.read_text().split())]
    threads = sum(len(list(Path(f"/proc/{one}/task").iterdir())) for one in pids)
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in pids)
    return threads, pages * os.sysconf("SC_PAGE_SIZE")
