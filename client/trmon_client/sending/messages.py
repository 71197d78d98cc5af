"""The messages of a monitor: numbered and filled in the trainer's thread, built in the encoder's."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from trmon_client.batch_decision import DecidedBatch
from trmon_client.config.run_config import sanitize
from trmon_client.config.settings import ClientSettings, Mode
from trmon_client.config.version import __version__
from trmon_client.core import wire
from trmon_client.core.arrays import Array, Transfer, is_tensor
from trmon_client.core.columns import Columns
from trmon_client.core.redaction import redact
from trmon_client.core.wire import MAX_NAME_LENGTH, MAX_SCALARS, ChunkCount, JsonNumber
from trmon_client.error_guard import ErrorGuard, LossCounter, LossReason, RejectedSteps
from trmon_client.process.identity import Identity, Ranks, launch_facts
from trmon_client.process.process_end import ProcessEnd
from trmon_client.sending.encoder import PendingMessage


def capture_scalars(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values: tensors ready for a transfer, which copies them, arrays copied, and others as numbers.

    None for a value that is not one number, and for a distributed tensor of which this rank holds a part. The trainer's
    own objects are not kept: a meter may hold a loss with its autograd graph.
    """
    return {name: _captured(value) for name, value in (values or {}).items()}


def scalars_to_wire(values: Mapping[str, Any], losses: LossCounter) -> dict[str, JsonNumber]:
    """Return the numbers; count other values, invalid names and numbers beyond MAX_SCALARS as losses."""
    numbers: dict[str, JsonNumber] = {}
    for name, value in values.items():
        number = _number(value)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
        if number is None or not is_name or len(numbers) >= MAX_SCALARS:
            losses.count(LossReason.SCALAR)
        else:
            numbers[name] = number
    return numbers


def _captured(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.reshape(()).copy() if value.size == 1 else None
    return _single_number(value) if is_tensor(value) else _number(value)


def _single_number(tensor: Any) -> Any:
    if tensor.numel() != 1:
        return None
    number = tensor.detach()
    if callable(getattr(number, "full_tensor", None)):
        # Gathering a sharded tensor would take a collective.
        if not all(placement.is_replicate() for placement in number.placements):
            return None
        number = number.to_local()
    if number.is_meta:
        return None
    number = number.reshape(())
    # numpy lacks torch's short floats, such as bfloat16.
    return number.float() if number.is_floating_point() and number.itemsize < 4 else number


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        return None


REMEMBERED = 256
"""How many past updates keep their numbering, in case the trainer returns to one."""

REPORTED_AT_ONCE = 16
"""How many counts one call reports; when the queue is full, they would pile up, and each call would copy them all."""

Key = tuple[int, "int | None"]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The index of one call in its update, how many the trainer announced, and the counts to be reported with it."""

    step: int
    update: int | None
    index: int
    announced: int | None
    finished: list[ChunkCount]


class ChunkCounter:
    """Numbers calls, and keeps the count of each finished update until a message reports it."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Key, int] = OrderedDict()
        self._open: Key | None = None
        self._unreported: dict[Key, None] = {}

    def next(self, step: int, update: int | None, *, chunks: int | None) -> ChunkPlace:
        """Number a call within its update; the previous update, or this one if complete, is now unreported."""
        key = (step, update)
        if self._open not in (None, key):
            self.finish()
        index = self._counts.get(key, 0)
        self._counts[key] = index + 1
        self._counts.move_to_end(key)
        self._open = key
        if chunks == index + 1:
            self.finish()
        if len(self._counts) > REMEMBERED:
            forgotten, _ = self._counts.popitem(last=False)
            self._unreported.pop(forgotten, None)
        return ChunkPlace(step, update, index, chunks, self.unreported(at_most=REPORTED_AT_ONCE))

    def finish(self) -> None:
        """Finish the open update: its count is unreported."""
        if self._open is not None:
            self._unreported[self._open] = None
            self._open = None

    def unreported(self, *, at_most: int = REMEMBERED) -> list[ChunkCount]:
        """Return the counts that no message has reported yet, oldest first."""
        return [ChunkCount(*key, chunks=self._counts[key]) for key in islice(self._unreported, at_most)]

    def mark_reported(self, counts: list[ChunkCount]) -> None:
        """Remove counts that a message reports."""
        for count in counts:
            self._unreported.pop((count.step, count.update), None)


MAX_REASON_LENGTH = 1000
LAUNCH = "launch"
"""The entry of a configuration that tells how the process was started."""


def start_message(settings: ClientSettings, ranks: Ranks, *, sequence: int) -> PendingMessage:
    """Return the message that a process of the trainer has started."""
    return PendingMessage(
        lambda identity, _losses: wire.Start(
            **identity.origin(),
            sequence=sequence,
            config={LAUNCH: launch_facts() | settings.start_facts, **settings.config},
            owner=settings.owner,
            tags=list(settings.tags),
            mode=_mode(settings.mode),
            policy=settings.policy.spec() if settings.is_policy_asked_for else None,
            client=f"trmon-client {__version__}",
            ranks_unverified=ranks.is_unverified,
            attempt_is_local=identity.is_attempt_local,
        )
    )


def report_message(
    batch: DecidedBatch,
    *,
    chunk: ChunkPlace,
    mode: Mode,
    scalars: Mapping[str, Any] | None,
    on_finite: Callable[[Mapping[str, Any]], None],
    on_values: Callable[[Mapping[str, Any], Columns], None],
    error_guard: ErrorGuard,
    rejected: RejectedSteps,
) -> PendingMessage:
    """Return the report of one call: its columns and the decision; the encoder waits for a device's tensors.

    Args: on_finite: called in the encoder's thread with the finite values of arguments that had none before; on_values:
    called there with the ranges and the columns; rejected: told there how many sequences an enforced policy accepted.
    """
    columns, decision, captured = batch.columns, batch.verdict, capture_scalars(scalars)
    names, ranged, unseen = tuple(captured), tuple(batch.ranges), tuple(batch.finite)
    on_device = columns.arrays if is_tensor(columns["n_tokens"]) else []
    decided = [decision.accepted] if decision.turns is None else [decision.accepted, decision.turns.accepted]
    parts = [on_device, decided, [*captured.values()], [*batch.ranges.values()], [*batch.finite.values()]]
    # Sizes alone: the arrays would keep what is on a device, and its graph.
    transfer, sizes = Transfer.begin([array for part in parts for array in part]), [*map(len, parts)]

    def build(identity: Identity, lost: wire.Losses) -> wire.Report:
        arrived = iter(transfer.wait())
        arrays, (accepted, *accepted_turns), numbers, limits, finite = ([*islice(arrived, n)] for n in sizes)
        on_host = columns.with_arrays(arrays) if on_device else columns
        on_values(dict(zip(ranged, limits, strict=True)), on_host)
        on_finite(dict(zip(unseen, finite, strict=True)))
        if mode is Mode.ENFORCE:
            n_accepted, policy = int(np.count_nonzero(accepted)), decision.policy.name
            rejected.see(chunk.step, n_sequences=len(accepted), n_accepted=n_accepted, policy=policy)
        return wire.Report(
            **identity.origin(),
            step=chunk.step,
            update=chunk.update,
            chunk=chunk.index,
            chunks=chunk.announced,
            parcel=wire.pack_columns(on_host),
            kl_is=columns.kl_is,
            kl_pair=columns.kl_pair,
            trainer_version=columns.trainer_version,
            old_version=columns.old_version,
            mode=_mode(mode),
            policy=decision.policy.hash,
            accepted=wire.pack_bits(accepted),
            scalars=scalars_to_wire(dict(zip(names, numbers, strict=True)), error_guard.losses),
            finished=chunk.finished,
            losses=lost,
            turns=_packed_turns(on_host, accepted_turns),
        )

    return PendingMessage(build, size_bytes=_size_bytes(columns))


def scalars_message(step: int, values: Mapping[str, Any], *, sequence: int, losses: LossCounter) -> PendingMessage:
    """Return the message with the trainer's own numbers of a step."""
    captured = capture_scalars(values)
    names, transfer = tuple(captured), Transfer.begin([*captured.values()])

    def build(identity: Identity, _losses: wire.Losses) -> wire.Scalars:
        numbers = dict(zip(names, transfer.wait(), strict=True))
        return wire.Scalars(**identity.origin(), sequence=sequence, step=step, values=scalars_to_wire(numbers, losses))

    return PendingMessage(build, size_bytes=512 + 64 * len(captured))


def pause_message(reason: str, *, sequence: int) -> PendingMessage:
    """Return the message that the trainer pauses on purpose."""
    shown = sanitize(reason, at_most=MAX_REASON_LENGTH)
    return PendingMessage(lambda identity, _losses: wire.Pause(**identity.origin(), sequence=sequence, reason=shown))


def add_saved(saved: dict[int, str], step: int, path: str) -> list[int]:
    """Note a checkpoint among those still on this disk, by step; return the steps of those deleted, oldest first.

    One that is not on this disk, such as a URL, is taken to be kept. The encoder's thread alone calls it: the disk may
    be slow.
    """
    gone = [at for at, known in sorted(saved.items()) if at != step and (known == path or not _is_there(known))]
    if _is_there(path):
        saved[step] = path
    for at in [*gone, *sorted(saved.keys() - gone)[: -wire.MAX_DELETED]]:
        del saved[at]
    return gone


def _is_there(path: str) -> bool:
    """Whether a path is on this disk; one that may not be read is."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


MAX_PATH_LENGTH = 1000


def checkpoint_message(
    step: int, path: str | os.PathLike[str], *, part: str, saved: dict[int, str], sequence: int, secret: str | None
) -> PendingMessage:
    """Return the message that a checkpoint has been saved; a relative path is made absolute, a URL is not."""
    given = sanitize(os.fspath(path), at_most=MAX_PATH_LENGTH)
    place = given if "://" in given else str(Path(given).absolute())

    def build(identity: Identity, _losses: wire.Losses) -> wire.Pause:
        gone = add_saved(saved, step, f"{place}/{part}" if part else place)
        told = wire.SavedCheckpoint(step, redact(place, secrets=[secret]), gone)
        return wire.Pause(**identity.origin(), sequence=sequence, reason="checkpoint", checkpoint=told)

    return PendingMessage(build)


def finish_message(
    end: ProcessEnd, *, sequence: int, finished: list[wire.ChunkCount], secret: str | None = None
) -> PendingMessage:
    """Return the message that the process ends, and how; the texts do not hold the secret."""
    error, trace = (redact(text, secrets=[secret]) for text in (end.error, end.traceback))
    outcome: Literal["finished", "crashed"] = "crashed" if end.is_crash else "finished"
    return PendingMessage(
        lambda identity, lost: wire.Finish(
            **identity.origin(),
            sequence=sequence,
            outcome=outcome,
            reason=end.reason.value,
            exit_code=end.exit_code,
            signal=end.signal,
            error=error,
            traceback=trace,
            finished=finished,
            losses=lost,
        )
    )


def _packed_turns(columns: Columns, accepted: list[Array]) -> wire.PackedTurns | msgspec.UnsetType:
    if columns.turns is None:
        return msgspec.UNSET
    return wire.pack_turns(columns.turns, accepted=accepted[0] if accepted else None)


def _size_bytes(columns: Columns) -> int:
    turns = columns.turns
    of_turns = 0 if turns is None else len(turns.by_name) * len(turns.n_tokens)
    return 1024 + 8 * (len(columns) * columns.n_sequences + of_turns)


def _mode(mode: Mode) -> Literal["observe", "enforce"]:
    return "enforce" if mode is Mode.ENFORCE else "observe"
