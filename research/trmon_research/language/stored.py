"""What is kept of a run: one archive of its reports, the tokens of every tenth step and its evaluations, and a line."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from trmon_client.core import wire
from trmon_client.core.wire.segments import SUFFIX
from trmon_research.detection.recorded_run import messages_in
from trmon_research.language.plans import DATA, Plan, plans

RUNS = DATA / "runs"
MANIFEST = RUNS / "manifest.jsonl"
TOKENS_EVERY = 10
SPOOL, TOKENS, EVALUATIONS = "spool", "tokens", "evaluations.jsonl"
INDEX = "recording.json"
Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run whose archive is there, and what the manifest says of its training."""

    plan: Plan
    facts: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The archive."""
        return archive(self.plan.name)


def archive(name: str) -> Path:
    """Return the file of a run."""
    return RUNS / f"{name}.tar.xz"


def stored_runs(*, sealed: bool) -> Iterator[StoredRun]:
    """Yield the runs of one half that are stored, in the order of the plans."""
    lines = MANIFEST.read_text().splitlines() if MANIFEST.exists() else []
    facts = {line["run"]: line for line in map(json.loads, lines)}
    for plan in plans():
        if plan.is_sealed is sealed and plan.name in facts:
            yield StoredRun(plan, facts[plan.name])


def pack(plan: Plan, folder: Path, *, core_seconds: float) -> None:
    """Store a run that was trained in a folder. Errors: ValueError if the client lost a message."""
    lost = [one.losses.dropped for one in messages_of(folder, wire.Finish) if one.losses.dropped]
    if lost:
        raise ValueError(f"{plan.name}: the client lost messages, {lost}; train it again on a less busy machine")
    RUNS.mkdir(parents=True, exist_ok=True)
    unfinished = archive(plan.name).with_suffix(".partial")
    with tarfile.open(unfinished, "w:xz", preset=9 | lzma.PRESET_EXTREME) as tar:
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            if path.suffix == SUFFIX or inner.name == EVALUATIONS:
                _add(tar, inner, path.read_bytes())
            elif path.name == INDEX:
                index = json.loads(path.read_text())
                index["calls"] = [call for call in index["calls"] if call["step"] % TOKENS_EVERY == 0]
                _add(tar, inner, json.dumps(index).encode())
                for call in index["calls"]:
                    _add(tar, inner.with_name(call["file"]), path.with_name(call["file"]).read_bytes())
    unfinished.rename(archive(plan.name))
    with MANIFEST.open("a") as manifest:
        manifest.write(json.dumps(_line(plan, folder, core_seconds=core_seconds)) + "\n")


def _add(tar: tarfile.TarFile, inner: Path, content: bytes) -> None:
    entry = tarfile.TarInfo(str(inner))
    entry.size = len(content)
    tar.addfile(entry, BytesIO(content))


def _line(plan: Plan, folder: Path, *, core_seconds: float) -> dict[str, Any]:
    """Return what the manifest says of a run: its configuration, what is wrong with it, and how it went."""
    evaluations = [json.loads(line) for line in (folder / EVALUATIONS).read_text().splitlines()]
    reports = messages_of(folder, wire.Report)
    described = asdict(plan) | {"fault": None}
    if plan.fault is not None:
        described["fault"] = asdict(plan.fault) | {"accept": sorted(plan.fault.accept)}
    return {
        "run": described.pop("name"),
        **described,
        "n_reports": sum(1 for _ in reports),
        "evaluated": {one["update"]: one["reward"] for one in evaluations},
        "core_seconds": round(core_seconds),
        "bytes": archive(plan.name).stat().st_size,
        "versions": {name: version(name) for name in ("torch", "transformers", "trl", "trmon-client")},
    }


def unpack(name: str, folder: Path) -> Path:
    """Write what is stored of a run into a folder: `spool` for `trmon ingest`, `tokens` for `trmon replay`."""
    with tarfile.open(archive(name)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def messages_of(folder: Path, kind: type[Message]) -> Iterator[Message]:
    """Yield the messages of one kind."""
    for message in messages_in(folder / SPOOL):
        if isinstance(decoded := wire.decode(message, media_type=wire.MSGPACK), kind):
            yield decoded
