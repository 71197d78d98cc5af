"""`trmon watch`: the steps of a log appear while it is written, and an interrupt pauses the run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.tracker_logs import TRACKER_LOGS
from tests.fixtures.waiting import eventually
from trmon.cli.running_service import ReportUploader
from trmon.cli.watch import LogWatch
from trmon.domain.identity import RunKey


def line(step: int) -> str:
    return f"(TaskRunner pid=12) step:{step} - actor/lr:1e-06 - critic/score/mean:0.5\n"


@pytest.mark.slow
def test_a_log_is_followed_while_it_is_written(shared_service: ThreadedService, tmp_path: Path) -> None:
    log = tmp_path / "verl.log"
    log.write_text("loading\n")
    code = "from trmon.cli import app; app()"
    options = ["--project", "math", "--url", shared_service.url, "--every", "0.1"]
    command = [sys.executable, "-c", code, "watch", str(log), *options]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith(f"trmon: {log}: has no row of metrics in 1 line of text")
    path = "/api/v1/runs/math/verl"
    with shared_service.client() as client:

        def steps() -> list[int]:
            answer = client.get(f"{path}/batches")
            return sorted(batch["step"] for batch in answer.json()["items"]) if answer.status_code == 200 else []

        for newest in (3, 6):
            with log.open("a") as file:
                file.writelines(line(step) for step in range(newest - 3, newest))
                file.write("the line after it\n")
            eventually(steps, lambda found, last=newest: found[: last - 1] == list(range(last - 1)))
        with log.open("a") as file:
            file.write(line(6).removesuffix("5\n"))
        watching.send_signal(signal.SIGINT)
        said, wrong = watching.communicate(timeout=30)
        assert watching.returncode == 0, wrong
        assert re.search(r"math/verl: \d+ new messages: console, 6 rows, steps 0 to 5, verl's names\n", said)
        assert wrong == ""
        run = eventually(lambda: client.get(path).json(), lambda run: run["state"] == "paused")
    assert run["last_step"] == 5


def test_a_folder_of_event_files_is_followed_into_the_file_of_a_restart(
    shared_service: ThreadedService, tmp_path: Path
) -> None:
    uploader = ReportUploader(shared_service.url, token=None)
    folder = tmp_path / "runs"
    folder.mkdir()
    first, second = sorted((TRACKER_LOGS / "tensorboard" / "restarted").iterdir())
    data = first.read_bytes()
    (folder / first.name).write_bytes(data[: len(data) // 2])
    following = LogWatch(folder, RunKey("math", "grpo"), uploader=uploader).follow(Event(), every_seconds=0.01)
    sent = next(done for done in following if not isinstance(done, str))
    assert {step for _, step in sent.read.steps} == {1, 2, 3}
    assert [defect.is_end for defect in sent.read.defects] == [True]
    (folder / first.name).write_bytes(data)
    sent = next(done for done in following if not isinstance(done, str))
    assert (max(sent.read.steps), sent.read.defects) == ((0, 5), [])
    (folder / second.name).write_bytes(second.read_bytes())
    sent = next(done for done in following if not isinstance(done, str))
    assert (max(sent.read.steps), sent.counts) == ((1, 7), {"stored": 6})
    uploader.close()


def test_the_steps_are_sent_when_the_service_is_back(service: ThreadedService, tmp_path: Path) -> None:
    log = tmp_path / "verl.log"
    log.write_text(line(0) + line(1))
    port = int(service.url.rpartition(":")[2])
    service.stop()
    uploader = ReportUploader(service.url, token=None)
    following = LogWatch(log, RunKey("math", "verl"), uploader=uploader).follow(Event(), every_seconds=0.01)
    assert "no service answers" in str(next(following))
    service.start(port=port)
    sent = next(done for done in following if not isinstance(done, str))
    assert (sent.read.steps, sent.counts) == ({(0, 0), (0, 1)}, {"stored": 3})
    log.write_text(line(0) + line(1) + line(2) + "step:3 - actor/lr:1")
    sent = next(done for done in following if not isinstance(done, str))
    assert (sent.counts, sent.read.defects) == ({"stored": 1}, [])
    uploader.close()
