"""An incident makes the trainer record, and the replay of what it recorded is what the service stored."""

from __future__ import annotations

from pathlib import Path

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
