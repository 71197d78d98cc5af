"""Commands over logs: diagnosed, imported once or again, and watched while they are written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.testing import Result

from tests.fixtures.command import run_here
from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.tracker_logs import TRACKER_LOGS, unpacked_mlflow_store
from tests.fixtures.waiting import eventually
from trmon.cli.import_ import messages_of, run_names
from trmon.cli.running_service import ReportUploader
from trmon.cli.watch import LogWatch
from trmon.domain.identity import RunKey
from trmon.logs import LogSource
from trmon_client.core import wire

N_STEPS = 30
BROKEN_AT = 20
START = 1_700_000_000.0


def row(step: int) -> dict[str, Any]:
    """A line of verl's file logger."""
    metrics = {
        "actor/lr": 1e-6,
        "actor/grad_norm": 90.0 if step == BROKEN_AT else 0.3,
        "critic/score/mean": 0.5,
        "rollout_corr/kl": 1e-4,
        "rollout_corr/k3_kl": 1e-4 if step < BROKEN_AT else 0.2,
        "training/rollout_actor_probs_pearson_corr": 0.999 if step < BROKEN_AT else 0.2,
        "mine/seen": step,
        "_timestamp": START + 60.0 * step,
    }
    return {"step": step, "data": metrics}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run of 30 steps, whose engines disagree from step 20 on."""
    path = tmp_path / "grpo 7b.jsonl"
    write(path, range(N_STEPS))
    return path


def write(path: Path, steps: range) -> None:
    path.write_text("".join(json.dumps(row(step)) + "\n" for step in steps))


def run_import(run: OwnRun, *arguments: object) -> Result:
    """Import a log into the run's project."""
    return run_here("import", *arguments, "--project", run.key.project, url=str(run.client.base_url))


def diagnosis(run: OwnRun, of: object) -> Any:
    """Return what `trmon diagnose` says of a log, or of a run of the service."""
    done = run_here("diagnose", of, "--json", url=str(run.client.base_url))
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_an_imported_log_is_a_run_with_rows_charts_alerts_and_a_diagnosis(run: OwnRun, log: Path) -> None:
    done = run_import(run, log)
    assert (done.exit_code, done.stderr) == (0, "")
    run = replace(run, key=RunKey(run.key.project, "grpo-7b"))
    first, signals, unknown = done.stdout.splitlines()
    assert first == f"{run.key}: imported: jsonl, 30 rows, steps 0 to 29, verl's names"
    assert "mismatch_kl_k3 (rollout_corr/k3_kl)" in signals
    assert unknown == "not understood: mine/seen"
    found = eventually(run.get, lambda found: found["state"] == "finished")
    assert found["last_step"] == N_STEPS - 1
    assert found["config"]["imported"] == {"format": "jsonl", "framework": "verl", "timed": True}
    signals = run.get(f"/signals?names=mismatch_kl_k3,reward_mean,mine/seen,_timestamp&points={N_STEPS}")["signals"]
    assert signals["mismatch_kl_k3"]["last"] == [1e-4] * BROKEN_AT + [0.2] * (N_STEPS - BROKEN_AT)
    assert signals["mine/seen"]["last"] == list(range(N_STEPS))
    assert signals["_timestamp"]["last"][-1] == START + 60.0 * (N_STEPS - 1)
    assert signals["reward_mean"]["last"] == [0.5] * N_STEPS
    alerts = run.client.get("/api/v1/alerts", params={"project": run.key.project}).json()["items"]
    assert {"incident", "engine_mismatch"} <= {alert["rule"] for alert in alerts}
    of_run, of_log = diagnosis(run, run.key), diagnosis(run, log)["diagnosis"]
    assert told(of_run) == told(of_log)
    assert (of_run["framework"], of_run["unmeasured"]) == ("verl", of_log["unmeasured"])
    assert of_run["remedy"]["options_in_words"] | of_run["remedy"]["options"]


def test_a_backtest_raises_what_the_service_raised_of_a_log_that_is_ill_twice(run: OwnRun, tmp_path: Path) -> None:
    rows = [row(0) | {"step": step} for step in range(90)]
    for one in rows[20:45]:
        one["data"]["rollout_corr/k3_kl"] = 0.2
    for one in rows[40:]:
        one["data"]["response_length/clip_ratio"] = 0.9
    log = tmp_path / "two-causes.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert run_import(run, log).exit_code == 0
    run = replace(run, key=RunKey(run.key.project, "two-causes"))
    eventually(run.get, lambda found: found["state"] == "finished")
    done = run_here("backtest", run.client.base_url, "--run", run.key, "--json")
    assert done.exit_code == 0, done.stderr
    [outcome] = json.loads(done.stdout.splitlines()[0])["outcomes"]
    assert outcome["unlike_live"] == []
    causes = [alert["cause"] for alert in outcome["alerts"] if alert["rule"] == "incident"]
    assert causes == ["engine_mismatch", "cut_at_limit"]


def told(diagnosis: Any) -> Any:
    """Return what is wrong by a diagnosis, since when, and the last good step."""
    findings = [(found["finding"], found["since_step"], found["last_good_step"]) for found in diagnosis["findings"]]
    return findings, diagnosis["sentence"], diagnosis["since_step"], diagnosis["last_good_step"]


def test_a_whole_log_is_sent_by_step_and_one_that_is_written_as_it_is(tmp_path: Path) -> None:
    rewards = [{"rollout/step": step, "rollout/raw_reward": 0.4, "_timestamp": START + step} for step in (0, 1, 2, 0)]
    updates = [{"train/step": step, "train/ppo_kl": 0.0, "_timestamp": START + 9.0 - step} for step in (0, 1)]
    log = tmp_path / "slime.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rewards + updates))
    source = LogSource.of(log)

    def sent(now: float | None) -> list[tuple[int, float]]:
        messages = messages_of(source, RunKey("math", "grpo"), now=now)
        return [(one.step, one.sent_at - START) for one in messages if isinstance(one, wire.Scalars)]

    assert sent(None) == [(0, 0.0), (1, 1.0), (2, 2.0), (0, 0.0), (0, 9.0), (1, 8.0)]
    assert sent(START + 60.0) == [(0, 0.0), (1, 1.0), (2, 2.0), (0, 0.0), (0, 9.0), (1, 9.0)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rewards[:3] + updates))
    source = LogSource.of(log)
    assert sent(START + 60.0) == [(0, 0.0), (0, 9.0), (1, 9.0), (1, 9.0), (2, 9.0)]


def test_an_import_again_changes_nothing_and_a_longer_log_adds_its_steps(run: OwnRun, log: Path) -> None:
    write(log, range(10))
    assert f"{run.key}: imported: jsonl, 10 rows" in run_import(run, log, "--run", "grpo").stdout

    def seen() -> Any:
        batches = run.get("/batches?limit=50")["items"]
        return [(batch["step"], batch["signals"], batch.get("revised")) for batch in batches]

    before = eventually(seen, lambda rows: len(rows) == 10)
    again = run_import(run, log, "--run", "grpo")
    assert again.stdout.startswith(f"{run.key}: already present: jsonl, 10 rows, steps 0 to 9, verl's names\n")
    assert seen() == before
    write(log, range(N_STEPS))
    assert run_import(run, log, "--run", "grpo").exit_code == 0
    rows = eventually(seen, lambda rows: len(rows) == N_STEPS)
    assert sorted(row[0] for row in rows) == list(range(N_STEPS))


def test_a_restart_is_a_second_attempt_and_bad_lines_are_named(run: OwnRun, log: Path) -> None:
    lines = [json.dumps(row(step)) for step in (0, 1, 2, 3)]
    lines += ['{"step": 4, "da', json.dumps({"step": 2, "data": row(2)["data"] | {"note": "resumed"}})]
    lines += [json.dumps(row(3)), '{"step": 4, "lo']
    log.write_text("\n".join(lines))
    done = run_import(run, log, "--run", "grpo")
    assert done.exit_code == 1
    assert "jsonl, 6 rows, steps 0 to 3" in done.stdout
    assert "2 attempts: the trainer went back in steps" in done.stdout
    assert [line.split(": ", 1)[1] for line in done.stderr.splitlines()] == [
        "line 5: is not a JSON object",
        "line 6: note: 'resumed' is not a number; left out",
        "line 6: goes back to step 2; read as another attempt",
        "line 8: is not a JSON object",
    ]
    batches = eventually(lambda: run.get("/batches")["items"], lambda found: len(found) == 6)
    assert sorted(batch["step"] for batch in batches) == [0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("recording", "name"),
    [
        ("tensorboard/grpo", "grpo"),
        ("wandb/offline-run-20231114_221320-trmon01", "offline-run-20231114_221320-trmon01"),
        ("mlflow/mlflow.db/grpo", "grpo"),
    ],
    ids=["tensorboard", "wandb", "mlflow"],
)
def test_what_a_tracker_recorded_is_a_run(recording: str, name: str, run: OwnRun, tmp_path: Path) -> None:
    tracker, steps = recording.partition("/")[0], range(1, 7)
    run = replace(run, key=RunKey(run.key.project, name))
    log = unpacked_mlflow_store(tmp_path) / "grpo" if tracker == "mlflow" else TRACKER_LOGS / recording
    done = run_import(run, log)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{run.key}: imported: {tracker}, ")
    assert "steps 1 to 6, verl's names\n" in done.stdout
    again = run_import(run, log)
    assert (again.exit_code, again.stdout) == (0, done.stdout.replace("imported", "already present"))
    eventually(run.get, lambda found: found["state"] == "finished")
    names = "mine/seen,_timestamp,grad_norm,loss,mismatch_kl_k3"
    signals = run.get(f"/signals?names={names}&points={len(steps)}")["signals"]
    assert signals["mine/seen"]["last"] == list(steps)
    assert signals["_timestamp"]["last"] == [START + 60.0 * step for step in steps]
    assert signals["mismatch_kl_k3"]["last"] == pytest.approx([0.001 * step for step in steps])
    assert [signals[name]["last"].index(value) for name, value in (("grad_norm", "inf"), ("loss", None))] == [3, 4]
    assert diagnosis(run, run.key)["sentence"] == diagnosis(run, log)["diagnosis"]["sentence"]


def test_a_log_that_grew_within_its_first_step_adds_the_rest(run: OwnRun, tmp_path: Path) -> None:
    recorded = next((TRACKER_LOGS / "tensorboard" / "grpo").iterdir())
    events = tmp_path / recorded.name
    for n_bytes in (100, 200, None):
        events.write_bytes(recorded.read_bytes()[:n_bytes])
        done = run_import(run, events, "--run", "grpo")
        assert "refuses" not in done.stderr

    def seen() -> Any:
        # A name is known once a step with it has closed.
        return run.get("/signals?names=mine/seen&points=6")["signals"]["mine/seen"]["last"]

    assert eventually(seen, lambda values: len(values) == 6) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_runs_have_the_names_of_their_logs_or_else_of_their_folders(tmp_path: Path) -> None:
    for names, runs in (
        (["a.b c.log"], ["a.b-c"]),
        (["math/trainer_state.json"], ["math"]),
        (["qwen/checkpoint-9/trainer_state.json"], ["qwen"]),
        (["a/wandb.jsonl", "b/wandb.csv", "c.jsonl"], ["a-wandb", "b-wandb", "c"]),
        (["a.jsonl", "a.csv"], [f"{tmp_path.name}-a", f"{tmp_path.name}-a-2"]),
    ):
        assert run_names([tmp_path / name for name in names]) == runs


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


def test_event_files_are_followed_into_that_of_a_restart(shared_service: ThreadedService, tmp_path: Path) -> None:
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


HEALTHY = {"training/rollout_actor_probs_pearson_corr": 0.999, "actor/lr": 1e-6}
ILL = HEALTHY | {"training/rollout_actor_probs_pearson_corr": 0.4}


def run_diagnose(*arguments: object) -> Result:
    return run_here("diagnose", *arguments)


@pytest.fixture
def ill_log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    rows = ({"step": step, "data": ILL if step > 20 else HEALTHY} for step in range(40))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("fail_on", "status"),
    [("any", 1), ("temperature,engine_mismatch", 1), ("reward_collapse", 0), ("A", 2)],
)
def test_the_exit_status_is_for_continuous_integration(fail_on: str, status: int, ill_log: Path) -> None:
    assert run_diagnose(ill_log).exit_code == 0
    done = run_diagnose(ill_log, "--fail-on", fail_on)
    assert (done.exit_code, "trmon: found engine_mismatch (engine mismatch, or stale rollouts)" in done.stderr) == (
        status,
        status == 1,
    )


@pytest.mark.parametrize("text", ["step:12 - rollout_corr/ppl_ratio:2.6e7 - actor/lr:1e-06\n", json.dumps(ILL)])
def test_a_single_line_is_a_log(text: str, tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.write_text(text)
    found = run_diagnose(path)
    assert found.exit_code == 0
    assert "verl's names" in found.output
    assert "outside the healthy range: " in found.output
    assert json.loads(run_diagnose(path, "--json").output)["log"]["framework"] == "verl"


def test_the_limits_of_a_rules_file_count_for_a_log(ill_log: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {name: engine_mismatch, disabled: true}\n")
    assert run_diagnose(ill_log, "--fail-on", "any").exit_code == 1
    assert run_diagnose(ill_log, "--fail-on", "any", "--rules", rules).exit_code == 0
    rules.write_text("rules: 3\n")
    assert run_diagnose(ill_log, "--rules", rules).exit_code == 2


def test_names_that_are_not_understood_can_be_mapped_and_are_listed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    names = [f"mine/{i}" for i in range(12)]
    rows = ({"step": step, "my_score": 0.5, "grad_norm": 0.3} | dict.fromkeys(names, 1.0) for step in range(3))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [unknown] = [line for line in run_diagnose(path).output.splitlines() if line.startswith("not understood")]
    assert unknown.startswith("not understood: my_score (like ")
    assert unknown.endswith("mine/8 and 3 more (--verbose)")
    found = run_diagnose(path, "--map", "my_score=reward_mean", "--verbose").output
    assert "reward_mean (my_score)" in found
    assert "mine/11" in found


def test_a_log_may_come_from_standard_input(ill_log: Path) -> None:
    log = ill_log.read_bytes()
    assert (
        "engine mismatch, or stale rollouts since step 21 (last good step 20)"
        in run_here("diagnose", "-", answer=log).output
    )
    refused = run_here("diagnose", "-", answer=b"foo:1\n")
    assert (refused.exit_code, "trmon: -: has no row of metrics" in refused.stderr) == (2, True)


def test_the_report_is_json_too(ill_log: Path) -> None:
    document = json.loads(run_diagnose(ill_log, "--json", "--gpus", 8).output)
    assert document["diagnosis"]["word"] == "finding"
    assert document["diagnosis"]["findings"][0]["finding"] == "engine_mismatch"
    assert document["log"]["n_rows"] == 40
