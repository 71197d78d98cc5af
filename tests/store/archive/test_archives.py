"""Tests archives: export and import lose nothing, and an import is atomic and never changes another run."""

from __future__ import annotations

import json
import math
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from sqlalchemy import Table, select, update

from tests.domain.findings.judgements import found, judged
from tests.fixtures.databases import open_migrated_store
from tests.store.builders import (
    NOW,
    alert,
    alert_event,
    append,
    batch,
    batch_key,
    begin,
    commit,
    decision,
    execute,
    report_intake,
    start_intake,
    stored_reports,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.alerts.alert import AlertState
from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.errors import Conflict, InvalidInput, NotFound
from trmon.domain.findings.judge import Place
from trmon.domain.findings.verdict import with_attempts
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.policies import default_version
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.archive.arrow_tables import PLAIN_TABLES
from trmon.store.repositories.archives import ImportedRun, ImportOutcome
from trmon.store.schema import tables
from trmon.store.writing.group_commit import CommittedGroup

NOT_ARCHIVED = frozenset(
    {"chunk_axes", "signal_chunk", "run_summary", "event", "delivery", "lake_batch_attempt", "lake_deletion"}
)
"""The other tables of a run: an import rebuilds the columnar history, and nothing writes summaries; events, the outbox
and what has moved to the lake belong to one database, and copying them would send notifications twice."""
STEPS = range(300)
"""More steps than one chunk of history holds."""
REPORTS = range(40)
"""The first steps, whose reports are still stored."""
ASIDE = quarantined(QuarantinePart.REPORT, "rank 0, chunk 0", "a stored report is damaged")
COMPARED = (
    *(tables.run, tables.run_tag, tables.attempt, tables.claim, tables.report, tables.notice, tables.batch),
    *(tables.decision, tables.policy_version, tables.adaptation, tables.alert, tables.alert_event, tables.run_state),
    tables.note,
)


def signals(step: int) -> dict[str, float]:
    """Return signals with a NaN, an infinity, and one that only some batches have."""
    rare = {"staleness_kl_k3": math.inf} if step % 7 == 0 else {}
    return {"total_kl_k3": 1e-3 * step, "mask_rate": math.nan, **rare}


def closed(key: BatchKey, **fields: Any) -> BatchRow:
    made = batch(key, ordinal=key.step + 1, signals=signals(key.step), scalars={"lr": 1e-3}, **fields)
    return made.with_quarantined([ASIDE]) if key.step == 7 else made


def fill(store: Store, *, run: str = "grpo", first_id: int = 0) -> None:
    """Store a run with every kind of row and one unprocessed report."""
    [receipt] = append(store, start_intake(run=run, owner="me"))
    run_id, attempt_id = receipt.run_id, receipt.attempt_id
    append(store, *(report_intake(run=run, step=step, seed=step % 3) for step in REPORTS))
    append(store, report_intake(run=run, step=5, launch="launch-2", attempt="b"))
    ids = [stored.id for stored in stored_reports(store, run_id)]
    store.policies.put(run_id, default_version(now=NOW)).result()
    store.adaptations.put(run_id, AdaptationSetting(mode=AdaptationMode.RECOMMEND), access=EVERYTHING, now=NOW).result()
    firing = alert(run_id=run_id, attempt_id=attempt_id, identity=f"{run_id}/corrupt_logprobs")
    pending = alert(
        run_id=run_id, attempt_id=attempt_id, identity=f"{run_id}/x/a=b", state=AlertState.PENDING, value=math.nan
    )
    keys = [batch_key(attempt_id, step) for step in STEPS]
    commit(
        store,
        run_id,
        frontier=Frontier(report_id=ids[len(REPORTS) - 1], notice_id=1),
        batches=tuple(closed(key, run_id=run_id, last_report_id=ids[min(key.step, len(REPORTS) - 1)]) for key in keys),
        decisions=tuple(decision(key, mask_rate=math.nan) for key in keys),
        alerts=(firing, pending),
        alert_events=(alert_event(firing),),
        state=RunState.STALLED,
        attempt_id=attempt_id,
        tags=("dapo", "night"),
        config={"lr": 1e-3},
    )
    store.notes.add(RunKey("math", run), access=EVERYTHING, now=NOW, author="ana", text="lr raised", step=7).result()
    store.reports.flush()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """Another database, with different ids."""
    opened = open_migrated_store(tmp_path / "other" / "trmon.db")
    append(opened, *(report_intake(project="code", run="ppo", step=step) for step in range(3)))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a project with one run, exported from SQLite."""
    folder = tmp_path_factory.mktemp("archived")
    store = open_migrated_store(folder / "trmon.db")
    fill(store)
    store.archives.export_project("math", folder / "archive", now=NOW)
    store.close()
    return folder / "archive"


@pytest.fixture
def root(made_once: Path, tmp_path: Path) -> Path:
    """A copy of the archive for one test."""
    return shutil.copytree(made_once, tmp_path / "archive")


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    """The same archive, exported from a store whose rows a test compares or changes."""
    fill(store)
    store.archives.export_project("math", tmp_path / "exported", now=NOW)
    return tmp_path / "exported"


def rows(store: Store, table: Table, key: RunKey) -> list[dict[str, Any]]:
    """Return a run's rows without ids; references are replaced by the referenced rows."""
    run = store.runs.get(key, access=EVERYTHING)
    names = {attempt.id: attempt.name for attempt in store.runs.attempts(run.id)}
    places = {stored.id: place for place, stored in enumerate(stored_reports(store, run.id), 1)}
    with store._reader.connect() as connection:
        of_run = table.c.run_id == run.id if "run_id" in table.c else table.c.attempt_id.in_(names)
        found = select(table).where(table.c.id == run.id if table is tables.run else of_run)
        found = found.order_by(*table.primary_key.columns)
        sets = {row.id: row.names for row in connection.execute(select(tables.name_set))}
        read = [dict(row) for row in connection.execute(found).mappings()]
    known: dict[str, Callable[[Any], Any]] = {
        "id": lambda _: None,
        "run_id": lambda _: None,
        "notice_id": bool,
        "project": lambda _: None,
        "attempt_id": names.get,
        "fork_of": names.get,
        "report_id": places.get,
        "last_report_id": places.get,
        "identity": lambda identity: identity.removeprefix(f"{run.id}/"),
        "signal_names": sets.get,
        "scalar_names": sets.get,
    }
    return [{name: repr(known.get(name, lambda value: value)(value)) for name, value in row.items()} for row in read]


def run_names(store: Store) -> list[str]:
    """Return the names of all runs, hidden ones included."""
    pages = [store.runs.list(access=EVERYTHING, archived=archived) for archived in (False, True)]
    return [str(run.key) for page in pages for run in page.items]


def is_refused(store: Store, root: Path, *, match: str) -> None:
    """Import an archive that must be refused, and check that it leaves nothing."""
    with pytest.raises(InvalidInput, match=match):
        list(store.archives.import_project(root))
    assert run_names(store) == ["code/ppo"]


def replace_column(root: Path, table: str, column: str, change: Callable[[Any], Any]) -> None:
    """Replace a column of a table of the archive's run."""
    [file] = (root / f"table={table}" / "run=grpo").iterdir()
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), column, change(rows[column])), file)


def test_a_damaged_report_is_archived_unchanged(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    first = update(tables.report).where(tables.report.c.step == 0).values(payload=b"\xc1")
    every = update(tables.report).where(tables.report.c.step > 30).values(payload=b"\xc1")
    for spoil in (first, every):
        execute(store, spoil)
    store.archives.export_project("math", tmp_path / "archive", now=NOW)
    assert len(list(other.archives.import_project(tmp_path / "archive", project="again"))) == 1
    before = rows(store, tables.report, RunKey("math", "grpo"))
    assert rows(other, tables.report, RunKey("again", "grpo")) == before


def test_every_row_round_trips_with_the_columnar_history(store: Store, other: Store, exported: Path) -> None:
    assert [run.outcome for run in other.archives.import_project(exported, project="again")] == [ImportOutcome.IMPORTED]
    for table in (*COMPARED, tables.chunk_axes, tables.signal_chunk):
        before = rows(store, table, RunKey("math", "grpo"))
        assert before, table.name
        assert rows(other, table, RunKey("again", "grpo")) == before, table.name


def test_the_judgement_of_a_run_goes_with_it(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    run = store.runs.get(RunKey("math", "grpo"), access=EVERYTHING)
    [attempt, again] = [one.id for one in store.runs.attempts(run.id)]
    ended = found("entropy_explosion", since=3, attempt=attempt, ended=Place(attempt, 15))
    ill = found("engine_mismatch", attempt=again, last_good=Place(attempt, 21), beyond=Place(again, 25))
    judgement = replace(judged(ill, over=(ended,)), place=Place(again, 40))
    commit(store, run.id, outlook={"gauge_ordinal": 300, "judgement": msgspec.to_builtins(judgement)})
    store.archives.export_project("math", tmp_path / "exported", now=NOW)
    list(other.archives.import_project(tmp_path / "exported"))
    copied = other.runs.get(RunKey("math", "grpo"), access=EVERYTHING)
    ids = dict(zip((attempt, again), (one.id for one in other.runs.attempts(copied.id)), strict=True))
    assert ids[attempt] != attempt
    read = other.run_snapshots.outlooks([copied.id])[copied.id].judgement
    assert read == with_attempts(judgement, ids)
    assert (read.place.attempt, read.last_good) == (ids[again], Place(ids[attempt], 21))
    assert (read.findings[0].beyond, read.over[0].ended) == (Place(ids[again], 25), Place(ids[attempt], 15))


def test_every_table_is_either_archived_or_listed_as_excluded() -> None:
    of_runs = {table.name for table in tables.metadata.sorted_tables if {"run_id", "attempt_id"} & {*table.c.keys()}}
    kept = {kept.table.name for kept in PLAIN_TABLES} | {"batch", "report"}
    assert kept | NOT_ARCHIVED == of_runs | {"run"}
    assert not kept & NOT_ARCHIVED
    assert kept == {table.name for table in COMPARED}


def test_importing_twice_changes_nothing(other: Store, root: Path) -> None:
    list(other.archives.import_project(root))
    before = [rows(other, table, RunKey("math", "grpo")) for table in COMPARED]
    assert [run.outcome for run in other.archives.import_project(root)] == [ImportOutcome.ALREADY_PRESENT]
    assert [rows(other, table, RunKey("math", "grpo")) for table in COMPARED] == before


def test_a_run_that_has_continued_since_the_export_is_unchanged(store: Store, exported: Path) -> None:
    append(store, report_intake(step=len(STEPS)))
    assert [run.outcome for run in store.archives.import_project(exported)] == [ImportOutcome.ALREADY_PRESENT]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"seed": 99}, id="a report differs"),
        pytest.param({"step": 1}, id="a report is missing"),
        pytest.param({"attempt": "z"}, id="the attempt has another name"),
    ],
)
def test_an_import_into_a_different_run_is_refused(other: Store, root: Path, changed: dict[str, Any]) -> None:
    append(other, start_intake(), report_intake(**{"step": 0, "seed": 0} | changed))
    before = rows(other, tables.report, RunKey("math", "grpo"))
    with pytest.raises(Conflict, match="another run has the name 'math/grpo'; import into another project"):
        list(other.archives.import_project(root))
    assert rows(other, tables.report, RunKey("math", "grpo")) == before


def test_the_rows_of_an_interrupted_import_are_hidden_and_then_deleted(other: Store, root: Path) -> None:
    [alerts] = (root / "table=alerts" / "run=grpo").iterdir()
    whole = alerts.read_bytes()
    alerts.write_bytes(whole[: len(whole) // 2])
    is_refused(other, root, match=r"cannot read .*table=alerts/run=grpo/part-0.parquet")
    alerts.write_bytes(whole)
    assert [run.outcome for run in other.archives.import_project(root)] == [ImportOutcome.IMPORTED]


def test_a_flipped_bit_is_detected(other: Store, root: Path) -> None:
    [reports] = (root / "table=reports" / "run=grpo").iterdir()
    damaged = bytearray(reports.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    reports.write_bytes(damaged)
    is_refused(other, root, match="cannot read")


ROWS = 33


def test_a_small_file_of_many_large_rows_is_refused_and_leaves_nothing(other: Store, root: Path) -> None:
    [file] = root.glob("table=reports/run=grpo/part-*.parquet")
    table = pq.read_table(file, partitioning=None)
    payload = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array([bytes(8 << 20)], pa.binary()))
    repeated = pa.concat_tables([table.slice(0, 1)] * ROWS)
    for name, values in {"payload": payload, "id": pa.array(range(ROWS)), "step": pa.array(range(ROWS))}.items():
        repeated = repeated.set_column(repeated.column_names.index(name), name, values)
    pq.write_table(repeated, file, compression="zstd", store_schema=False)
    described = json.loads((root / "manifest.json").read_text())
    described["rows"]["reports"] += ROWS - table.num_rows
    (root / "manifest.json").write_text(json.dumps(described))
    is_refused(other, root, match=r"part-0\.parquet expands to over 256 MiB, over 256 times its size")


@pytest.mark.parametrize("table", ["runs", "sequences"], ids=["read by an import", "for queries only"])
def test_an_archive_with_missing_files_is_refused(other: Store, root: Path, table: str) -> None:
    [file] = (root / f"table={table}" / "run=grpo").iterdir()
    file.unlink()
    is_refused(other, root, match=rf"table={table} has 0 of \d+ rows: files are missing")


@pytest.mark.parametrize(
    ("table", "column", "value", "problem"),
    [
        ("alerts", "identity", None, ""),
        ("alerts", "state", "confused", ""),
        ("attempts", "fork_reason", "confused", ""),
        ("runs", "warnings", '[{"x": 1}]', ""),
        ("runs", "config", "{", ""),
        ("frontiers", "outlook", '{"judgement": {"word": "confused"}}', ""),
        ("notes", "text", "a\x1b[2J", ""),
        ("policies", "policy", '{"criteria": 1}', ""),
        ("adaptations", "setting", '{"mode": "apply", "every_steps": 0}', ""),
        ("attempts", "name", None, "database refuses: NOT NULL constraint failed: attempt.name"),
        ("reports", "rank", None, "database refuses: NOT NULL .* report.rank"),
    ],
)
def test_an_unreadable_value_is_refused(
    other: Store, root: Path, table: str, column: str, value: str | None, problem: str
) -> None:
    replace_column(root, table, column, lambda values: pa.array([value, *values.to_pylist()[1:]], values.type))
    is_refused(other, root, match=f"grpo.*{problem}")


@pytest.mark.parametrize("column", ["update_index", "missing_ranks", "signals"])
def test_a_batch_with_a_column_of_another_type_is_refused(other: Store, root: Path, column: str) -> None:
    replace_column(root, "batches", column, lambda values: pa.array(map(str, values.to_pylist())))
    is_refused(other, root, match="the table batches of grpo has unexpected columns")


def test_an_alert_of_a_run_without_reports_round_trips(store: Store, other: Store, tmp_path: Path) -> None:
    [run_id] = begin(store, "math/grpo")
    commit(store, run_id, alerts=(alert(run_id=run_id, attempt_id=0, identity=f"{run_id}/stalled"),))
    store.archives.export_project("math", tmp_path / "archive", now=NOW)
    [run] = other.archives.import_project(tmp_path / "archive")
    id_ = other.runs.get(run.key, access=EVERYTHING).id
    assert [(found.attempt_id, found.identity) for found in other.run_log.open_alerts(id_)] == [(0, f"{id_}/stalled")]


def test_of_two_concurrent_imports_one_is_refused(other: Store, root: Path, tmp_path: Path) -> None:
    second = Store.open(f"sqlite:///{tmp_path}/other/trmon.db")
    came: list[ImportedRun] = []

    def come_between(_: CommittedGroup) -> None:
        if not came:
            came.extend(second.archives.import_project(root))

    other.writer.on_commit(come_between)
    with pytest.raises(Conflict, match="another import of 'math/grpo' is running"):
        list(other.archives.import_project(root))
    second.close()
    assert [run.outcome for run in came] == [ImportOutcome.IMPORTED]
    assert [run.outcome for run in other.archives.import_project(root)] == [ImportOutcome.ALREADY_PRESENT]


def test_batches_whose_reports_were_pruned_refer_to_no_report(store: Store, other: Store, tmp_path: Path) -> None:
    fill(store)
    store.retention.prune(now=NOW + 10, max_age_seconds=1.0, max_bytes_per_run=1 << 40, max_bytes=1 << 40)
    written = store.archives.export_project("math", tmp_path / "archive", now=NOW)
    assert (written.rows["reports"], written.rows["batches"]) == (1, len(STEPS))
    [run] = other.archives.import_project(tmp_path / "archive")
    id_ = other.runs.get(run.key, access=EVERYTHING).id
    assert {row.last_report_id for row in other.run_log.batches_after(id_, 0, limit=1000)} == {0}
    assert other.run_log.progress(id_).frontier.report_id == 0


def test_an_export_has_one_partition_per_run_of_the_project(store: Store, tmp_path: Path) -> None:
    begin(store, "math/one", "math/two.2", "math/~partial-import", "code/grpo")
    written = store.archives.export_project("math", tmp_path / "archive", now=NOW)
    assert written.runs == ("one", "two.2")
    assert {path.name for path in (tmp_path / "archive" / "table=runs").iterdir()} == {"run=one", "run=two.2"}


def test_an_archive_is_readable_by_its_owner_only(root: Path) -> None:
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    paths = list(root.rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}


def test_an_unfinished_export_is_reported(store: Store, tmp_path: Path) -> None:
    append(store, start_intake(), report_intake())
    store.archives.export_project("math", tmp_path / "archive", now=NOW)
    (tmp_path / "archive" / "manifest.json").rename(tmp_path / "archive" / ".manifest.json.part")
    with pytest.raises(Conflict, match="holds an unfinished export; if no export is running"):
        store.archives.export_project("math", tmp_path / "archive", now=NOW)


def test_a_failed_export_leaves_no_folder(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no project 'math'"):
        store.archives.export_project("math", tmp_path / "archive", now=NOW)
    assert not (tmp_path / "archive").exists()
    append(store, start_intake())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(Conflict, match="is not empty"):
        store.archives.export_project("math", tmp_path / "mine", now=NOW)


def manifest(**changed: Any) -> str:
    usual = {"format": 1, "revision": "0001", "project": "p", "runs": [], "rows": {}, "exported_at": 0}
    return json.dumps(usual | changed)


MANIFESTS = [
    pytest.param(None, "is not a complete archive", id="an unfinished export"),
    pytest.param('{"format": 1', "cannot read", id="invalid JSON"),
    pytest.param(manifest(format=2), "upgrade", id="a newer format"),
    pytest.param(manifest(revision="9999"), "upgrade", id="a newer schema"),
    pytest.param(manifest(runs=["../x"]), "is not a valid name", id="a run outside the folder"),
]


@pytest.mark.parametrize(("text", "said"), MANIFESTS)
def test_a_folder_that_is_not_an_archive_is_refused(other: Store, tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        list(other.archives.import_project(tmp_path))
