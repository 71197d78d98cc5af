"""The messages of a monitor as drafts: filled in the trainer's thread, built in the sender's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from trmon_client.chunks import Chunk
from trmon_client.core import wire
from trmon_client.core.acceptance import Decision
from trmon_client.core.arrays import is_tensor
from trmon_client.core.columns import Columns
from trmon_client.fence import fence
from trmon_client.identity import Identity
from trmon_client.losses import LossCounter
from trmon_client.outbox import Draft
from trmon_client.ranks import Ranks
from trmon_client.scalars import capture, to_wire
from trmon_client.settings import Mode, Settings
from trmon_client.version import __version__

MAX_ERROR_LENGTH = 1000


def start(settings: Settings, ranks: Ranks, *, sequence: int) -> Draft:
    """A process of the trainer has begun to speak."""
    return Draft(
        lambda identity, _lost: wire.Start(
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


def report(
    columns: Columns,
    decision: Decision,
    *,
    chunk: Chunk,
    mode: Mode,
    scalars: Mapping[str, Any] | None,
    losses: LossCounter,
) -> Draft:
    """The columns of one call and what was decided with them; a device is read in the sender's thread."""
    captured = capture(scalars)
    wait = fence([columns["n_tokens"], *captured.values()])

    def build(identity: Identity, lost: wire.Losses) -> wire.Report:
        wait()
        on_host = columns.numpy()
        accepted = decision.accepted
        return wire.Report(
            **identity.origin(),
            step=chunk.step,
            update=chunk.update,
            chunk=chunk.index,
            columns=wire.pack_columns(on_host),
            histograms=wire.pack_histograms(on_host),
            kl_is=columns.kl_is,
            kl_pair=columns.kl_pair,
            trainer_version=columns.trainer_version,
            old_version=columns.old_version,
            mode=_mode(mode),
            policy=decision.policy.hash,
            accepted=wire.pack_bits(accepted.cpu() if is_tensor(accepted) else accepted),
            scalars=to_wire(captured, losses),
            finished=chunk.finished,
            losses=lost,
        )

    return Draft(build, size_bytes=1024 + 8 * len(columns) * columns.n_sequences)


def scalars(step: int, values: Mapping[str, Any], *, sequence: int, losses: LossCounter) -> Draft:
    """Numbers of the trainer's own for a step."""
    captured = capture(values)
    wait = fence(captured.values())

    def build(identity: Identity, _lost: wire.Losses) -> wire.Scalars:
        wait()
        return wire.Scalars(**identity.origin(), sequence=sequence, step=step, values=to_wire(captured, losses))

    return Draft(build, size_bytes=512 + 64 * len(captured))


def pause(reason: str, *, sequence: int) -> Draft:
    """The trainer will be silent on purpose."""
    return Draft(
        lambda identity, _lost: wire.Pause(**identity.origin(), sequence=sequence, reason=reason[:MAX_ERROR_LENGTH])
    )


def finish(error: BaseException | None, *, sequence: int, finished: list[wire.ChunkCount]) -> Draft:
    """The process ends: by an error, or cleanly without one."""
    shown = "" if error is None else f"{type(error).__name__}: {error}"[:MAX_ERROR_LENGTH]
    return Draft(
        lambda identity, lost: wire.Finish(
            **identity.origin(),
            sequence=sequence,
            outcome="finished" if error is None else "crashed",
            error=shown,
            finished=finished,
            losses=lost,
        )
    )


def _mode(mode: Mode) -> Literal["observe", "enforce"]:
    return "enforce" if mode is Mode.ENFORCE else "observe"
