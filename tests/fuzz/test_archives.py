"""No archive breaks `trmon import`: it is refused with a reason, or its runs can be read, judged and exported again."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.domain.trainer import finished, report
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.fuzzing import PLAIN_VALUES, edited, edited_document
from tests.store.builders import NOW, append, intake, start_intake
from tests.worker.watched_run import WATCH_CONFIG, RecordingObserver, finish
from trmon.domain.access import EVERYTHING
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.errors import TrmonError
from trmon.domain.identity import RunKey
from trmon.domain.policies import default_version
from trmon.fleet.views import RunViewCache
from trmon.store import Store
from trmon.worker.scheduler import Scheduler

pytestmark = pytest.mark.fuzz

STEPS = range(6)
PROJECTS = count()


@cache
def archive() -> dict[str, bytes]:
    """Return the files of a valid archive: a judged run with an alert, a policy and a setting."""
    with TemporaryDirectory() as folder:
        store = open_migrated_store(Path(folder) / "trmon.db")
        [start] = append(store, start_intake(config={"lr": 1e-6}, tags=["dapo"], owner="ana"))
        for step in STEPS:
            before = finished((step - 1, None, 1)) if step else []
            append(store, intake(report(step, health="corrupt", finished=before)), now=NOW + step)
        append(store, intake(finish(STEPS[-1])), now=NOW + len(STEPS))
        store.policies.put(start.run_id, default_version(now=NOW)).result()
        setting = AdaptationSetting(mode=AdaptationMode.RECOMMEND)
        store.adaptations.put(start.run_id, setting, access=EVERYTHING, now=NOW).result()
        judge(store, start.run_id)
        store.archives.export_project("math", Path(folder) / "archive", now=NOW)
        store.close()
        root = Path(folder) / "archive"
        return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def judge(store: Store, run_id: int) -> None:
    """Run passes over a run until no message is unread."""
    observer = RecordingObserver()
    scheduler = Scheduler(
        store.run_log, writer=store.run_log, watch_config=WATCH_CONFIG, views=RunViewCache(), observer=observer
    )
    while scheduler.run_passes({run_id}, now=NOW + 1e6):
        pass
    scheduler.write_checkpoints()
    assert not observer.failures


@dataclass(frozen=True)
class DamagedFile:
    """A file of the archive with other bytes; None: it is missing."""

    name: str
    change: str
    data: bytes | None = field(repr=False)


@st.composite
def damaged(draw: st.DrawFn) -> DamagedFile:
    """Return a damaged file of the archive: its bytes, its rows, or the manifest's document."""
    name = draw(st.sampled_from(sorted(archive())))
    data = archive()[name]
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return DamagedFile(name, "missing", None)
    if kind == 1:
        return DamagedFile(name, "bytes", draw(edited(st.just(data))))
    if name.endswith(".parquet"):
        change, rewritten_data = draw(rewritten(data))
        return DamagedFile(name, change, rewritten_data)
    document = draw(edited_document(st.just(json.loads(data)), leaves=PLAIN_VALUES))
    return DamagedFile(name, reprlib.repr(document), json.dumps(document).encode())


@st.composite
def rewritten(draw: st.DrawFn, data: bytes) -> tuple[str, bytes]:
    """Return a parquet file with a column changed, and how: another value, another type, or no column at all."""
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    i = draw(st.integers(0, table.num_columns - 1))
    column = table.schema.field(i)
    values = table.column(i).to_pylist()
    kind, change = draw(st.integers(0, 15)), f"{column.name}: "
    if kind == 0:
        table = table.remove_column(i)
    elif kind == 1:
        table = table.set_column(i, column.name, pa.array([None] * len(values), column.type))
    elif kind == 2:
        table = table.set_column(i, column.name, pa.array([str(value) for value in values], pa.string()))
    else:
        row = draw(st.integers(0, len(values) - 1))
        values[row] = draw(values_of(column.type, values))
        change += f"{reprlib.repr(values[row])} in row {row}"
        table = table.set_column(i, column.name, pa.array(values, column.type))
    out = pa.BufferOutputStream()
    pq.write_table(table, out, write_page_checksum=True)
    return change if change[-2:] != ": " else f"{change}kind {kind}", bytes(out.getvalue())


def values_of(kind: Any, valid: list[Any]) -> st.SearchStrategy[Any]:
    """Return other values of an Arrow type; documents and payloads are edited as such."""
    if pa.types.is_integer(kind):
        return st.sampled_from([0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
    if pa.types.is_floating(kind):
        return st.floats()
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_binary(kind):
        return st.binary(max_size=32) | edited(st.sampled_from([value for value in valid if value] or [b"x"]))
    if pa.types.is_string(kind):
        return st.text(max_size=12) | PLAIN_VALUES.map(json.dumps) | _edited_text(valid)
    return st.none()


def _edited_text(valid: list[Any]) -> st.SearchStrategy[str]:
    known = st.sampled_from([value for value in valid if value] or ["{}"])
    return edited(known.map(str.encode)).map(lambda data: data.decode(errors="ignore"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database that all cases share; each imports into a separate project."""
    opened = open_migrated_store(tmp_path_factory.mktemp("archives") / "trmon.db")
    yield opened
    opened.close()


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(max_examples=8, phases=[Phase.generate])
@given(damaged())
def test_an_archive_is_refused_or_its_runs_can_be_used(store: Store, damage: DamagedFile) -> None:
    project = f"p{next(PROJECTS)}"
    with TemporaryDirectory() as folder:
        root = Path(folder) / "archive"
        for name, data in {**archive(), damage.name: damage.data}.items():
            if data is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(data)
        try:
            imported = [run.key for run in store.archives.import_project(root, project=project)]
        except TrmonError as refusal:
            assert str(refusal)
            return
        for key in imported:
            check_usable(store, key)
        if imported:
            store.archives.export_project(project, Path(folder) / "again", now=NOW)


def check_usable(store: Store, key: RunKey) -> None:
    """A run can be read as the API reads it, and a worker can continue it."""
    run = store.runs.get(key, access=EVERYTHING)
    assert store.runs.attempts(run.id)
    store.policies.current(run.id)
    store.adaptations.get(run.id)
    store.run_log.batches_after(run.id, 0, limit=100)
    store.run_log.open_alerts(run.id)
    judge(store, run.id)
