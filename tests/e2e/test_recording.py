"""What an incident makes a trainer record, and what calibration makes it decide by, under a real service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

import trmon_client as trmon
from tests.fixtures.service import ThreadedService
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually
from tests.store.builders import stored_reports
from trmon.cli.replay import read_recordings
from trmon.config.settings import Settings
from trmon.domain.messages import StoredReport
from trmon.domain.recording import replay_recording
from trmon.store import Store
from trmon_client.core.policies.policy import preset
from trmon_client.core.recording_format import INDEX_FILE, Recording

pytestmark = pytest.mark.slow
ILL_FROM = 24
RUN = "/api/v1/runs/math/r"


def test_what_an_incident_makes_the_trainer_record_replays_to_what_the_service_stored(tmp_path: Path) -> None:
    service, folder = ThreadedService(tmp_path / "data"), tmp_path / "recordings"
    try:
        with (
            service.client() as client,
            trmon.init(
                project="math", run="r", url=service.url, spool_dir=tmp_path / "spool", record_dir=folder
            ) as monitor,
        ):
            steps = iter(range(1000))

            def train() -> bool:
                step = next(steps)
                monitor.log_batch(**two_engines_batch(step, ill_from=ILL_FROM), chunks=1, rewards=np.arange(16.0))
                eventually(lambda: client.get(f"{RUN}/batches/{step}").status_code == 200)
                return bool(_recordings(folder))

            eventually(train)
            advice = client.get(f"{RUN}/budget").json()["advice"]
            rows = {step: client.get(f"{RUN}/batches/{step}").json() for step in range(ILL_FROM, next(steps))}
    finally:
        service.stop()
    incident, *later = _recordings(folder)
    assert (incident.reason, incident.incident_since) == ("incident", advice["incident_since"])
    assert ILL_FROM <= advice["incident_since"] <= incident.calls[-1].step
    assert {recording.reason for recording in later} <= {"closed"}
    found = replay_recording(read_recordings(folder), n_worst=5)
    assert found.n_differing == 0
    assert all(token.step >= ILL_FROM for token in found.worst)
    stored = _stored_reports(tmp_path / "data")
    assert len(found.updates) >= 8
    for update in found.updates:
        [call], report = update.calls, stored[update.step]
        columns = report.columns()
        assert set(columns) == set(call.columns)
        for name in columns:
            np.testing.assert_array_equal(columns[name], call.columns[name], err_msg=name)
        assert np.packbits(call.accepted, bitorder="little").tobytes() == report.accepted
        if update.step in rows:
            of_service = rows[update.step]["signals"]
            shared = update.signals.keys() & of_service.keys()
            assert len(shared) > 50
            assert {name: of_service[name] for name in shared if of_service[name] is not None} == {
                name: pytest.approx(update.signals[name], rel=1e-12) for name in shared if of_service[name] is not None
            }


def _recordings(folder: Path) -> list[Recording]:
    return [
        msgspec.json.decode(path.read_bytes(), type=Recording)
        # Not by rglob: it fails in a folder that is renamed meanwhile.
        for path in sorted(folder.glob(f"*/*/*/{INDEX_FILE}"))
        if not path.parent.name.endswith(".partial")
    ]


def _stored_reports(data_dir: Path) -> dict[int, StoredReport]:
    store = Store.open(Settings(data_dir=data_dir).store_url)
    try:
        reports = stored_reports(store, 1)
        return {report.key.batch.step: report for report in reports if isinstance(report, StoredReport)}
    finally:
        store.close()


N, TOKENS = 128, 24
AHEAD = 8
"""How many steps the trainer may be ahead of the service."""


def batch(step: int, *, scale: float) -> dict[str, Any]:
    """Return the log-probs of two engines that differ by noise, and of weights that have moved a little."""
    random = np.random.default_rng(step)
    old = -random.gamma(0.4, 1.5, (N, TOKENS))
    return {
        "step": step,
        "rollout_logprobs": np.minimum(old - scale * np.expm1(old) * random.normal(size=old.shape), 0.0),
        "old_logprobs": old,
        "logprobs": np.minimum(old + 0.02 * random.normal(size=old.shape), 0.0),
        "mask": np.ones(old.shape, bool),
        "chunks": 1,
    }


def train(run: trmon.Monitor, client: httpx.Client, steps: range, *, scale: float = 0.04) -> trmon.BatchDecision:
    """Train, never far ahead of the service; return the decision of the last step."""
    for step in steps:
        decision = run.log_batch(**batch(step, scale=scale))
        if step % AHEAD == 0:
            eventually(lambda step=step: client.get(f"{RUN}/batches/{max(0, step - 2)}").status_code == 200)
    return decision


def row(client: httpx.Client, step: int) -> dict[str, Any]:
    answer = client.get(f"{RUN}/batches/{step}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


def history(client: httpx.Client) -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = client.get(f"{RUN}/policy/history").json()["items"]
    return versions[::-1]


def test_the_history_has_both_calibrations_and_the_trainer_decides_by_them(tmp_path: Path) -> None:
    service = ThreadedService(tmp_path / "data", port=0)
    later = iter(range(103, 1000))

    def next_decision(run: trmon.Monitor) -> trmon.BatchDecision:
        return run.log_batch(**batch(next(later), scale=0.06))

    with trmon.init(project="math", run="r", url=service.url, mode="enforce", spool_dir=tmp_path / "spool") as run:
        with service.client() as client:
            early = train(run, client, range(30))
            train(run, client, range(30, 44))
            eventually(lambda: len(history(client)) == 2)
            train(run, client, range(44, 48))
        assert early.policy is not None
        port = httpx.URL(service.url).port
        service.stop()
        service.start(port=port)
        with service.client() as client:
            train(run, client, range(48, 103), scale=0.06)
            eventually(lambda: len(history(client)) == 3)
            newest = history(client)[-1]["hash"]
            last = eventually(lambda: next_decision(run), lambda decision: decision.policy.hash == newest)
    with service.client() as client:
        start, first, second = history(client)
        rows = [eventually(lambda step=step: row(client, step)) for step in (0, 50, 103)]
    service.stop()
    assert (start["name"], start["author"], start["calibration"]) == ("trm_auto", "trmon", "uncalibrated")
    for version, phase in ((first, "first"), (second, "second")):
        assert (version["author"], version["name"]) == ("trmon:calibration", "trm_auto (calibrated)")
        assert (version["calibration"], version["evidence"]["phase"]) == ("calibrated", phase)
        assert version["evidence"]["n_sequences"] >= 2048
        assert "calibrate" not in version["policy"]
    bounds = [version["policy"]["criteria"][-1]["upper"] for version in (start, first, second)]
    assert bounds[1] < bounds[2] <= bounds[0] == 0.02
    assert early.policy.hash == preset("trm_auto").hash
    assert last.policy is not None
    assert last.policy.hash == second["hash"]
    assert [row["mismatches"] for row in rows] == [0, 0, 0]
    assert rows[2]["signals"]["mask_rate"] == pytest.approx(0.0, abs=0.05)
