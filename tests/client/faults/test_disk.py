"""A trainer whose spool's disk is full or cannot be written, while the service is away, and when it returns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.client.faults.conftest import FinishedTrainer, RunTrainer
from tests.client.faults.tiny_trainer import N_UPDATES
from tests.client.faults.tiny_trainer import STEPS as UNTOUCHED_STEPS
from tests.client.trainer import spooled
from tests.fixtures.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.server("unshare", "setpriv")]

STEPS = 60
MORE_SCALARS = 6
N_MESSAGES = len(["start"]) + STEPS * (N_UPDATES + len(["scalars"]) + MORE_SCALARS) + len(["finish"])
"""More than a small disk and the client's memory hold together."""

SMALL_DISK = (
    *("unshare", "--map-root-user", "--mount", "sh", "-ec"),
    'mkdir -p "$TRMON_SPOOL_DIR"; mount -t tmpfs -o size=128k tmpfs "$TRMON_SPOOL_DIR"; exec "$@"',
    "sh",
)
"""Runs a command whose spool is on a disk of 128 KiB of its own."""

WITHOUT_PRIVILEGE = (
    *("setpriv", "--bounding-set=-all", "--inh-caps=-all", "sh", "-ec"),
    'mkdir -p "$TRMON_SPOOL_DIR"; exec "$@"',
    "sh",
)
"""Runs a command without root's right to write where permissions forbid it."""

TRAIN = """
from pathlib import Path

from tests.client.server import Peer
from trmon_client.core import wire

PORT, STEPS, SPOOL = int(os.environ["PORT"]), int(os.environ["STEPS"]), Path(os.environ["TRMON_SPOOL_DIR"])
STEP_SECONDS = 0.02  # a trainer of no step time outruns the client's thread, and loses what no fault took

def mount(options):
    assert os.system(f"mount -o {options} {SPOOL}") == 0

def size(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:  # the client's thread removes a segment that the disk took in part
        return 0

def train_until_the_service_returns(fault=id):
    def before_step(step):
        time.sleep(STEP_SECONDS)
        fault(step)
        for index in range(int(os.environ["MORE_SCALARS"])):
            monitor.log_scalars(step, {f"more_{index}": 1.0})

    tell(untouched=train(steps=STEPS))
    monitor = trmon.init()
    tell(digest=train(monitor, steps=STEPS, before_step=before_step))
    tell(spooled=sum(map(size, SPOOL.rglob("*.seg"))))
    with Peer(port=PORT) as peer:
        monitor.close(timeout=None)
    start, *own, finish = peer.messages
    assert (type(start), type(finish)) == (wire.Start, wire.Finish)
    keys = [(type(message), message.step, str(getattr(message, "values", message))) for message in own]
    tell(received=len(peer.messages), n_twice=len(keys) - len({*keys}))
    tell(in_order=keys == sorted(keys, key=lambda key: key[1]))
    tell(lost=sum(finish.losses.dropped.values()), reasons=",".join(sorted(finish.losses.dropped)))
    tell(ends_at=time.time())
"""


@pytest.fixture
def run_with_small_disk(run_trainer: RunTrainer) -> RunTrainer:
    """Runs a trainer's script with a small disk for its spool, in mounts of its own."""
    if subprocess.run([*SMALL_DISK[:3], "true"], capture_output=True).returncode:
        pytest.skip("this system does not let its users mount a disk of their own (unprivileged user namespaces)")

    def run(script: str, *, url: str = "", prefix: tuple[str, ...] = (), **variables: str) -> FinishedTrainer:
        return run_trainer(script, url=url, prefix=(*SMALL_DISK, *prefix), **variables)

    return run


def run_until_the_service_returns(run: RunTrainer, script: str, *, prefix: tuple[str, ...] = ()) -> FinishedTrainer:
    """Run a script that trains while the service is away, and check what holds whatever happens to the disk."""
    port = free_port()
    counts = {"PORT": str(port), "STEPS": str(STEPS), "MORE_SCALARS": str(MORE_SCALARS)}
    done = run(TRAIN + script, url=f"http://127.0.0.1:{port}", prefix=prefix, **counts)
    done.assert_untouched(done.told["untouched"])
    assert (done.told["in_order"], done.told["n_twice"]) == ("True", "0")
    assert int(done.told["received"]) + int(done.told["lost"]) == N_MESSAGES
    return done


def assert_lost_and_warned_once(done: FinishedTrainer, why: str) -> None:
    """Assert that messages are lost for want of room, and that one line says why and what to do."""
    assert int(done.told["lost"]) > 0
    assert done.told["reasons"] == "queue_full"
    (warning,) = [line for line in done.stderr.splitlines() if "cannot write to the spool" in line]
    assert why in warning
    assert "TRMON_SPOOL_DIR" in warning


def test_on_a_full_disk_what_memory_cannot_hold_is_lost_counted_and_told(run_with_small_disk: RunTrainer) -> None:
    done = run_until_the_service_returns(run_with_small_disk, "train_until_the_service_returns()")
    assert_lost_and_warned_once(done, "No space left on device")
    assert int(done.told["spooled"]) > 0


def test_a_disk_that_is_full_for_a_while_keeps_what_comes_before_and_after(run_with_small_disk: RunTrainer) -> None:
    script = """
def fault(step):
    if step == 5:
        used_bytes = 512 * sum(path.stat().st_blocks for path in SPOOL.rglob("*"))
        mount(f"remount,size={used_bytes + 4096}")
    if step == STEPS - 5:
        mount("remount,size=64m")

mount("remount,size=64m")
train_until_the_service_returns(fault)
"""
    done = run_until_the_service_returns(run_with_small_disk, script)
    assert_lost_and_warned_once(done, "No space left on device")
    assert int(done.told["spooled"]) > 0


def test_a_read_only_disk_leaves_what_memory_holds(run_with_small_disk: RunTrainer) -> None:
    script = """
mount("remount,ro")
train_until_the_service_returns()
"""
    done = run_until_the_service_returns(run_with_small_disk, script)
    assert_lost_and_warned_once(done, "Read-only file system")


def test_a_folder_without_write_permission_leaves_what_memory_holds(run_trainer: RunTrainer) -> None:
    script = """
SPOOL.chmod(0o500)
train_until_the_service_returns()
"""
    done = run_until_the_service_returns(run_trainer, script, prefix=WITHOUT_PRIVILEGE)
    assert_lost_and_warned_once(done, "Permission denied")


def test_files_that_can_no_longer_be_deleted_are_sent_once(run_trainer: RunTrainer) -> None:
    script = """
def fault(step):
    if step == STEPS // 2:
        while not (segments := [*SPOOL.rglob("*.seg")]):
            time.sleep(0.01)
        segments[0].parent.chmod(0o500)

train_until_the_service_returns(fault)
"""
    done = run_until_the_service_returns(run_trainer, script, prefix=WITHOUT_PRIVILEGE)
    assert int(done.told["spooled"]) > 0
    assert done.told["lost"] == "0"


def test_without_any_room_the_end_says_what_is_lost(tmp_path: Path, untouched: str, run_trainer: RunTrainer) -> None:
    script = """
    from pathlib import Path

    Path(os.environ["TRMON_SPOOL_DIR"]).chmod(0o500)
    monitor = trmon.init()
    tell(digest=train(monitor))
    tell(ends_at=time.time())
    """
    done = run_trainer(script, url=f"http://127.0.0.1:{free_port()}", prefix=WITHOUT_PRIVILEGE)
    done.assert_untouched(untouched)
    assert spooled(tmp_path) == []
    assert f"{2 + UNTOUCHED_STEPS * (N_UPDATES + 1)} messages are lost" in done.stderr
