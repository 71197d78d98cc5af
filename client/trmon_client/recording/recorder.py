"""The recorder: a ring of the last steps' calls, written when an incident opens and when the process ends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from trmon_client.config.settings import ClientSettings
from trmon_client.config.version import __version__
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.policies.decision import Decision
from trmon_client.core.recording_format import RecordedCall, RecordedText, Recording
from trmon_client.process.ranks import Ranks
from trmon_client.recording.held_call import HeldCall, hold_call, sample_texts
from trmon_client.recording.recording_folder import RecordingFolder
from trmon_client.safety.error_guard import ErrorGuard
from trmon_client.sending.chunk_counter import ChunkPlace

INCIDENT = "incident"


class Recorder:
    """Holds calls of the newest `record_steps` steps; a thread of its own writes them, each call once.

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
        token_ids: Any = None,
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
        held = hold_call(entry, inputs, verdict=verdict, token_ids=token_ids)
        with self._lock:
            self._held.append(held)
            self._n_added += 1
            self._forget()

    def update(self, advice: Mapping[str, Any]) -> None:
        """Write the calls if the service's advice tells of an incident that has opened."""
        since = advice.get("incident_since")
        if since is not None and since != self._incident_since:
            self._incident_since = since
            self._write(INCIDENT)
        elif since is None:
            self._incident_since = None

    def finish(self, reason: str) -> None:
        """Write the calls that are not on disk yet, as the process ends."""
        self._write(reason)

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

    def _write(self, reason: str) -> None:
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

    def _write_calls(self, calls: Sequence[HeldCall], reason: str, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            path = self._folder.write(self._name(reason), self._recording(reason), calls)
        except Exception as error:  # noqa: BLE001  the edge of a thread: the trainer goes on without a recording
            self._error_guard.record(error)
            return
        self._error_guard.warn_once.warn(f"recording {path}", f"the last steps are recorded in {path}")

    def _name(self, reason: str) -> str:
        now = time.time_ns()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now / 1e9))
        return f"{stamp}.{now % 10**9:09d}-{reason}"

    def _recording(self, reason: str) -> Recording:
        return Recording(
            project=self._settings.project,
            run=self._settings.run,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            reason=reason,
            written_at=time.time(),
            client_version=__version__,
            incident_since=self._incident_since,
        )
