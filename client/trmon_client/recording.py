"""The recorder: keeps the tokens of the last steps in the trainer and writes them to disk when something is wrong."""

from __future__ import annotations

import math
import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from trmon_client.config.settings import ClientSettings
from trmon_client.config.version import __version__
from trmon_client.core.arrays import Array, Transfer, is_tensor, to_computable
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.policies.decision import Decision
from trmon_client.core.recording_format import (
    INDEX_FILE,
    LABELS,
    TURN_IDS,
    RecordedCall,
    RecordedSteps,
    RecordedText,
    Recording,
    SampleChoice,
)
from trmon_client.error_guard import ErrorGuard
from trmon_client.process.identity import Ranks
from trmon_client.sending.messages import ChunkPlace
from trmon_client.sending.spool import FOLDER_MODE, make_private_folder, open_private

MAX_TEXT_LENGTH = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class HeldCall:
    """The entry of a call in the index, and copies of its arrays, which a device may still be filling."""

    entry: RecordedCall
    names: tuple[str, ...]
    transfer: Transfer
    size_bytes: int

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, numpy; waits for the device."""
        return dict(zip(self.names, self.transfer.wait(), strict=True))


def hold_call(entry: RecordedCall, inputs: CheckedInputs, *, verdict: Decision) -> HeldCall:
    """Return a call with copies of its arrays."""
    given = {**inputs.logprobs, "mask": inputs.mask}
    given |= {name: array for name in LABELS if (array := getattr(inputs, name)) is not None}
    if inputs.turns is not None:
        given[TURN_IDS] = inputs.turns.ids
    if inputs.token_ids is not None:
        given["token_ids"] = inputs.token_ids
    given["accepted"] = verdict.accepted
    copies = [_copy(array) for array in given.values()]
    texts = sum(len(sample.text) for sample in entry.texts)
    size_bytes = sum(math.prod(array.shape) * array.itemsize for array in copies) + texts
    return HeldCall(entry, tuple(given), Transfer.begin(copies), size_bytes)


def sample_texts(texts: Sequence[str], *, rewards: Any, step: int) -> tuple[RecordedText, ...]:
    """Return the texts of the best and the worst reward, if rewards are given, and of one at random, by the step."""
    chosen: dict[SampleChoice, int] = {}
    if not len(texts):
        return ()
    if rewards is not None:
        values = np.nan_to_num(np.asarray(to_computable(rewards, None), np.float64), nan=-np.inf)
        chosen = {"best": int(np.argmax(values)), "worst": int(np.argmin(values))}
    chosen["random"] = random.Random(step).randrange(len(texts))  # noqa: S311  no secret; leaves the shared generator
    return tuple(RecordedText(at, choice, str(texts[at])[:MAX_TEXT_LENGTH]) for choice, at in chosen.items())


def _copy(array: Array) -> Array:
    """Return an array that the trainer cannot change; numpy has no bfloat16."""
    if not is_tensor(array):
        return array.copy()
    return array.float() if str(array.dtype) == "torch.bfloat16" else array.detach()


UNFINISHED = ".partial"
OVERHEAD_BYTES = 4096
"""The size on disk of a call without its arrays: the headers of its file, and its policy in the index."""


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """The recordings of one rank of a run: `directory` is of the run, `disk_bytes` their limit."""

    directory: Path
    rank: int
    disk_bytes: int

    def write(self, name: str, recording: Recording, calls: Sequence[HeldCall]) -> Path:
        """Write a recording and return its folder; the oldest recordings are deleted beyond the limit.

        A recording that is larger than the limit alone keeps its newest calls. Errors: OSError.
        """
        kept = self._fitting(calls)
        self._make_room(sum(map(_size_on_disk, kept)))
        target = self.directory / f"rank{self.rank}-{name}"
        unfinished = target.with_name(target.name + UNFINISHED)
        make_private_folder(self.directory)
        unfinished.mkdir(mode=FOLDER_MODE)
        try:
            for call in kept:
                with open_private(unfinished / call.entry.file, "xb") as file:
                    np.savez(file, **call.arrays())
            index = msgspec.structs.replace(recording, calls=tuple(call.entry for call in kept))
            with open_private(unfinished / INDEX_FILE, "xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(index), indent=1))
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return target

    def _fitting(self, calls: Sequence[HeldCall]) -> list[HeldCall]:
        sizes = accumulate(_size_on_disk(call) for call in reversed(calls))
        n_fitting = sum(size <= self.disk_bytes for size in sizes)
        return [*calls[len(calls) - n_fitting :]]

    def _make_room(self, size_bytes: int) -> None:
        """Delete the oldest recordings of this rank, and those that a dead process has not finished."""
        existing = sorted(self.directory.glob(f"rank{self.rank}-*")) if self.directory.is_dir() else []
        sizes = {path: _size_bytes(path) for path in existing}
        for path in existing:
            if path.suffix == UNFINISHED or sum(sizes.values()) + size_bytes > self.disk_bytes:
                shutil.rmtree(path, ignore_errors=True)
                sizes.pop(path)


def _size_on_disk(call: HeldCall) -> int:
    return call.size_bytes + OVERHEAD_BYTES


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


INCIDENT = "incident"


class Recorder:
    """Holds calls of the newest `record_steps` steps; a separate thread writes them, each call once.

    The trainer's thread adds, the uploader's learns of incidents. Failures are counted and reported once.
    """

    def __init__(self, settings: ClientSettings, ranks: Ranks, *, error_guard: ErrorGuard) -> None:
        assert settings.record_dir is not None
        self._settings = settings
        self._ranks = ranks
        self._error_guard = error_guard
        self._folder = RecordingFolder(
            settings.record_dir / settings.project / settings.run, ranks.rank, settings.limits.record_disk_bytes
        )
        self._lock = threading.RLock()
        self._held: deque[HeldCall] = deque()
        self._n_added = 0
        self._n_written = 0
        self._incident_since: int | None = None
        self._writer: threading.Thread | None = None

    def add(
        self,
        inputs: CheckedInputs,
        *,
        verdict: Decision,
        place: ChunkPlace,
        kl_is: str,
        texts: Sequence[str] | None = None,
    ) -> None:
        """Hold a call, and forget those beyond the limits of steps and memory. Errors: ValueError."""
        samples: tuple[RecordedText, ...] = ()
        if texts is not None and self._settings.record_texts:
            samples = sample_texts(texts, rewards=inputs.rewards, step=place.step)
        update = "" if place.update is None else f"-update{place.update:05d}"
        entry = RecordedCall(
            file=f"step{place.step:09d}{update}-chunk{place.index:05d}.npz",
            step=place.step,
            update=place.update,
            chunk=place.index,
            mode=self._settings.mode.value,
            policy=verdict.policy.spec(),
            kl_is=kl_is,
            trainer_version=inputs.trainer_version,
            old_version=inputs.old_version,
            texts=samples,
        )
        held = hold_call(entry, inputs, verdict=verdict)
        with self._lock:
            self._held.append(held)
            self._n_added += 1
            self._forget()

    def update(self, advice: Mapping[str, Any]) -> None:
        """Write the calls if the service's advice names a newly opened incident."""
        since = advice.get("incident_since")
        if since is not None and since != self._incident_since:
            self._incident_since = since
            self.write(INCIDENT)
        elif since is None:
            self._incident_since = None

    def write(self, reason: str) -> None:
        """Begin to write the calls that are not on disk yet, in a thread."""
        with self._lock:
            n_new = min(len(self._held), self._n_added - self._n_written)
            calls = list(self._held)[len(self._held) - n_new :]
            self._n_written = self._n_added
            if not calls:
                return
            before = self._writer
            self._writer = threading.Thread(
                target=self._write_calls, args=(calls, reason, before), name="trmon-recorder", daemon=True
            )
            self._writer.start()

    def wait(self, timeout_seconds: float) -> None:
        """Wait until what was begun is on disk, or the time is out."""
        writer = self._writer
        if writer is not None:
            writer.join(timeout_seconds)

    def _forget(self) -> None:
        steps = {held.entry.step for held in self._held}
        while len(steps) > self._settings.record_steps:
            oldest = self._held[0].entry.step
            while self._held and self._held[0].entry.step == oldest:
                self._held.popleft()
            steps = {held.entry.step for held in self._held}
        while sum(held.size_bytes for held in self._held) > self._settings.limits.record_bytes:
            self._held.popleft()

    def _write_calls(self, calls: Sequence[HeldCall], reason: str, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            now = time.time_ns()
            stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now / 1e9))}.{now % 10**9:09d}"
            recording = Recording(
                project=self._settings.project,
                run=self._settings.run,
                rank=self._ranks.rank,
                world_size=self._ranks.world_size,
                reason=reason,
                written_at=now / 1e9,
                client_version=__version__,
                incident_since=self._incident_since,
            )
            path = self._folder.write(f"{stamp}-{reason}", recording, calls)
            if self._ranks.rank == 0:  # The ranks keep the same steps, under the same folder.
                steps = [call.entry.step for call in calls]
                kept = RecordedSteps(min(steps), max(steps), str(self._folder.directory.absolute()))
                self._error_guard.losses.add_warning(*kept.told)
        except Exception as error:  # noqa: BLE001  the edge of a thread: the trainer continues without a recording
            self._error_guard.record(error)
            return
        self._error_guard.warn_once.warn(f"recording {path}", f"the last steps are recorded in {path}")
