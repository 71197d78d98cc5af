"""The messages of a monitor: filled in the trainer's thread, built in the encoder's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from trmon_client.config.redact import redact
from trmon_client.config.sanitize import sanitize
from trmon_client.config.settings import ClientSettings, Mode
from trmon_client.config.version import __version__
from trmon_client.core import wire
from trmon_client.core.arrays.backend import Array, is_tensor
from trmon_client.core.arrays.device_transfer import Transfer
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.decision import Decision
from trmon_client.deciding.given_policies import FiniteValues
from trmon_client.deciding.token_ranges import TokenRanges, probabilities_in, probabilities_text
from trmon_client.process.identity import Identity
from trmon_client.process.process_end import ProcessEnd
from trmon_client.process.ranks import Ranks
from trmon_client.safety.error_guard import ErrorGuard
from trmon_client.safety.losses import LossCounter
from trmon_client.sending.chunk_counter import ChunkPlace
from trmon_client.sending.queue import PendingMessage
from trmon_client.sending.scalars import capture_scalars, scalars_to_wire

MAX_REASON_LENGTH = 1000


def start_message(settings: ClientSettings, ranks: Ranks, *, sequence: int) -> PendingMessage:
    """Return the message that a process of the trainer has started."""
    return PendingMessage(
        lambda identity, _losses: wire.Start(
            **identity.origin(),
            sequence=sequence,
            config=dict(settings.config),
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
    columns: Columns,
    decision: Decision,
    *,
    chunk: ChunkPlace,
    mode: Mode,
    scalars: Mapping[str, Any] | None,
    ranges: TokenRanges,
    finite: FiniteValues,
    on_finite: Callable[[FiniteValues], None],
    error_guard: ErrorGuard,
) -> PendingMessage:
    """Return the report of one call: its columns and the decision; the encoder waits for a device's tensors.

    Args: ranges: those of the given log-probs; probabilities among them are warned of. finite: those of the arguments
        that held no finite value before; on_finite is called with them in the encoder's thread.
    """
    captured = capture_scalars(scalars)
    names, arguments = tuple(captured), tuple(ranges.by_argument)
    on_device = columns.arrays if is_tensor(columns["n_tokens"]) else []
    n_columns = len(on_device)
    decided = [decision.accepted] if decision.turns is None else [decision.accepted, decision.turns.accepted]
    transfer = Transfer.begin([*on_device, *decided, *captured.values(), *ranges.by_argument.values(), *finite.arrays])

    def build(identity: Identity, lost: wire.Losses) -> wire.Report:
        arrived = transfer.wait()
        on_host = columns.with_arrays(arrived[:n_columns]) if on_device else columns
        n_before_numbers = n_columns + len(decided)
        accepted, *accepted_turns = arrived[n_columns:n_before_numbers]
        n_before_ranges = n_before_numbers + len(names)
        numbers = dict(zip(names, arrived[n_before_numbers:n_before_ranges], strict=True))
        n_before_finite = n_before_ranges + len(arguments)
        _warn_of_probabilities(dict(zip(arguments, arrived[n_before_ranges:n_before_finite], strict=True)), error_guard)
        on_finite(finite.with_arrays(arrived[n_before_finite:]))
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
            scalars=scalars_to_wire(numbers, error_guard.losses),
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


def finish_message(
    end: ProcessEnd, *, sequence: int, finished: list[wire.ChunkCount], secret: str | None = None
) -> PendingMessage:
    """Return the message that the process ends, and how; texts of errors are sent without secrets."""
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


def _warn_of_probabilities(ranges: Mapping[str, Any], error_guard: ErrorGuard) -> None:
    if found := probabilities_in(ranges):
        error_guard.warn_of_misuse("probabilities", probabilities_text(found))


def _mode(mode: Mode) -> Literal["observe", "enforce"]:
    return "enforce" if mode is Mode.ENFORCE else "observe"
