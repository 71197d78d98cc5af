"""Runs, their states and their attempts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.runs.attempts import Resolution
from trmon_client.core import wire
from trmon_client.core.recording_format import RECORDED, RecordedSteps
from trmon_client.core.wire.messages import decodable

MAX_WARNINGS = 16
MAX_WARNING_LENGTH = 500
MAX_SUMMARY_LENGTH = 300
NO_EXIT = "no exit was seen: it was killed, it hangs, or its machine is gone"


@decodable
class RunEnding(msgspec.Struct, frozen=True, kw_only=True):
    """The end that a process of the trainer reported, at a time on the server's clock.

    `reason` is a value of EndReason, empty for a client that does not send it; `error` is one line.
    """

    at: float
    rank: int = 0
    reason: str = ""
    error: str = ""
    traceback: str = ""
    exit_code: int | None = None
    signal: str = ""

    @classmethod
    def of(cls, message: wire.Finish, *, at: float) -> RunEnding:
        """Return the end in a finish message."""
        return cls(
            at=at,
            rank=message.rank,
            reason=message.reason,
            error=message.error,
            traceback=message.traceback,
            exit_code=message.exit_code,
            signal=message.signal,
        )

    @property
    def phrase(self) -> str:
        """The end in a few words, such as `ended by SIGTERM`; empty if the client did not say."""
        where = f" on rank {self.rank}" if self.rank else ""
        match self.reason:
            case wire.EndReason.EXITED.value:
                return "ended, close() not called"
            case wire.EndReason.SIGNAL.value:
                return f"ended by {self.signal or 'a signal'}{where}"
            case _ if self.error:
                return f"{' '.join(self.error.split())[:MAX_SUMMARY_LENGTH]}{where}"
            case reason:
                return reason


@decodable
class RunWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake in the trainer's calls, by its kind, first reported at a time on the server's clock."""

    kind: str
    text: str
    at: float


def with_new_warnings(
    known: tuple[RunWarning, ...], reported: Mapping[str, str], *, at: float
) -> tuple[RunWarning, ...]:
    """Return the known warnings and the reported ones of other kinds, MAX_WARNINGS at most."""
    if not reported:
        return known
    kinds = {warning.kind for warning in known}
    told, saved = _parted(known)
    new = [
        RunWarning(kind=kind[:MAX_WARNING_LENGTH], text=text[:MAX_WARNING_LENGTH], at=at)
        for kind, text in sorted(reported.items())
        if kind[:MAX_WARNING_LENGTH] not in kinds and not _CHECKPOINT.fullmatch(kind)
    ]
    return (*(*told, *new)[:MAX_WARNINGS], *saved)


_CHECKPOINT = re.compile(r"checkpoint (\d{1,19})")
"""The kind under which a run keeps where the checkpoint of a step is saved."""
MAX_CHECKPOINTS, NEWEST_CHECKPOINTS = 32, 16
"""Of more checkpoints every second one is dropped, but for the newest ones."""
MAX_PATH_LENGTH = 1000


@dataclass(frozen=True, slots=True, order=True)
class SavedCheckpoint:
    """A checkpoint that the trainer has saved, in a path or a URL of its own; it told of it at a time."""

    step: int
    path: str
    at: float = 0.0


def with_checkpoint(known: tuple[RunWarning, ...], saved: wire.SavedCheckpoint, *, at: float) -> tuple[RunWarning, ...]:
    """Return the warnings with one more checkpoint, without those that it replaces and those that are deleted."""
    told, others = _parted(known)
    path = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in saved.path)
    new = RunWarning(kind=f"checkpoint {saved.step}", text=path[:MAX_PATH_LENGTH], at=at)
    gone = {saved.step, *saved.deleted}
    kept = [new, *(one for one in others if _step_of(one) not in gone and one.text != new.text)]
    kept.sort(key=_step_of)
    if len(kept) > MAX_CHECKPOINTS:
        kept = [*kept[:-NEWEST_CHECKPOINTS:2], *kept[-NEWEST_CHECKPOINTS:]]
    return (*told, *kept)


def without_checkpoints_after(known: tuple[RunWarning, ...], step: int) -> tuple[RunWarning, ...]:
    """Return the warnings without the checkpoints of the steps that a restart went back over: of another course."""
    told, saved = _parted(known)
    return (*told, *(one for one in saved if _step_of(one) <= step))


def _parted(known: tuple[RunWarning, ...]) -> tuple[tuple[RunWarning, ...], tuple[RunWarning, ...]]:
    told = tuple(one for one in known if not _CHECKPOINT.fullmatch(one.kind))
    return told, tuple(one for one in known if _CHECKPOINT.fullmatch(one.kind))


def _step_of(saved: RunWarning) -> int:
    return int(saved.kind.split()[1])


class RunState(Enum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    STALLED = "stalled"
    CRASHED = "crashed"
    FINISHED = "finished"

    @property
    def ended(self) -> bool:
        """Whether the trainer has sent its end."""
        return self in (RunState.CRASHED, RunState.FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run; times are seconds since the epoch on the server's clock.

    `ending` is the newest end that its trainer reported, of a former start if the run continues.
    """

    id: int
    key: RunKey
    state: RunState
    owner: str | None = None
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    mode: str = "observe"
    created_at: float
    last_report_at: float | None = None
    last_step: int | None = None
    attempt_id: int | None = None
    archived: bool = False
    ending: RunEnding | None = None
    warnings: tuple[RunWarning, ...] = ()

    @property
    def newest_at(self) -> float:
        """When its newest report or scalars came; before the first, when it was created."""
        return self.created_at if self.last_report_at is None else self.last_report_at

    @property
    def mistakes(self) -> tuple[RunWarning, ...]:
        """The warnings about mistakes in the trainer's calls."""
        return tuple(one for one in _parted(self.warnings)[0] if not one.kind.startswith(RECORDED))

    @property
    def recorded(self) -> tuple[RecordedSteps, ...]:
        """The steps that the trainer's recorder has written, in the order in which it told of them."""
        told = (RecordedSteps.of(one.text) for one in self.warnings if one.kind.startswith(RECORDED))
        return tuple(steps for steps in told if steps is not None)

    @property
    def checkpoints(self) -> tuple[SavedCheckpoint, ...]:
        """The checkpoints that the trainer has saved and not deleted, as far as it reports them, by step."""
        return tuple(SavedCheckpoint(_step_of(one), one.text, one.at) for one in _parted(self.warnings)[1])

    @property
    def end_phrase(self) -> str | None:
        """How the run ended, in a few words; None while it continues, and for an end that names no reason."""
        if self.state is RunState.STALLED:
            return NO_EXIT
        return self.ending.phrase or None if self.ending is not None and self.state.ended else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of the trainer of a run; a restart that goes back in steps creates a new attempt."""

    id: int
    run_id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: int | None = None
    fork_reason: Resolution | None = None
    ranks_unverified: bool = False


MAX_NOTE_LENGTH = 2000
MAX_AUTHOR_LENGTH = 128
MAX_NOTES = 1000
_REORDERING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
"""Classes of characters that let text look like another one (Unicode, annex 9)."""


def checked_note_text(text: str) -> str:
    """Return the text of a note, without spaces around it. Errors: InvalidInput."""
    return _checked(text.strip(), field="text", max_length=MAX_NOTE_LENGTH, allowed="\n")


def checked_author(name: str) -> str:
    """Return the name of an author. Errors: InvalidInput."""
    return _checked(name.strip(), field="author", max_length=MAX_AUTHOR_LENGTH)


def _checked(text: str, *, field: str, max_length: int, allowed: str = "") -> str:
    if not 0 < len(text) <= max_length:
        raise InvalidInput(field, f"must have 1 to {max_length} characters, not {len(text)}")
    for character in text:
        is_reordering = unicodedata.bidirectional(character) in _REORDERING
        is_control = is_reordering or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        if character not in allowed and is_control:
            raise InvalidInput(field, f"holds the control character U+{ord(character):04X}")
    return text
