"""What was sent about recordings, kept next to them for as long as the code that judges is the same."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import trmon
import trmon_client.core
from trmon_research.detection import replay as replay_module
from trmon_research.detection.outcome import RunOutcome
from trmon_research.detection.recorded_run import RecordedCourse
from trmon_research.detection.replay import Told, replay

JUDGING = ("domain", "worker", "ingest", "store")
"""The packages of the service on which it depends what is sent."""


def outcomes_of(courses: Sequence[RecordedCourse], *, jobs: int) -> Iterator[RunOutcome]:
    """Yield the outcome of each recording as it is known, in any order."""
    missing = []
    for course in courses:
        path = told_path(course)
        if path.exists():
            yield RunOutcome.of(course, Told.from_json(path.read_text()))
        else:
            missing.append(course)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_replay_and_keep, course): course for course in missing}
        for future in as_completed(futures):
            yield RunOutcome.of(futures[future], future.result())


def told_path(course: RecordedCourse) -> Path:
    """Return the file of what this code told of a recording."""
    return course.folder / f"told-{code_digest()}.json"


@cache
def code_digest() -> str:
    """Return a digest of the code on which it depends what is sent."""
    service, client = Path(trmon.__file__).parent, Path(trmon_client.core.__file__).parent
    folders = [*(service / name for name in JUDGING), client]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".yaml")]
    digest = hashlib.sha256(Path(replay_module.__file__).read_bytes())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _replay_and_keep(course: RecordedCourse) -> Told:
    told = replay(course)
    told_path(course).write_text(told.to_json())
    return told
