"""The messages a trainer sends and the answers it gets."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from trmon_client.core.arrays.dtypes import DType
from trmon_client.core.columns.schema import N_BINS, KlIs, Pair
from trmon_client.core.policies.acceptance import SEMANTICS_VERSION

WIRE_MAJOR = 1
WIRE_MINOR = 0


class EncodedColumn(msgspec.Struct, frozen=True, gc=False):
    """One column as little-endian bytes; it holds nothing that could hold it."""

    dtype: DType
    data: bytes


class PackedColumns(msgspec.Struct, frozen=True):
    """The columns and histograms of B sequences in one piece, half as long: as they are stored.

    `data` is one zstd frame of byte-shuffled little-endian numbers: [columns, B] of each dtype, whose rows `names`
    says, sorted; then the histograms of `pairs`, [pairs, N_BINS] of i8.
    """

    n_sequences: int
    names: dict[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]
    data: bytes

    @property
    def n_bytes(self) -> int:
        """How many bytes its numbers have."""
        per_sequence = sum(int(dtype[1]) * len(names) for dtype, names in self.names.items())
        return self.n_sequences * per_sequence + len(self.pairs) * 8 * N_BINS


JsonNumber: TypeAlias = int | float | None | Literal["inf", "-inf", "nan"]
WireColumn: TypeAlias = EncodedColumn | list[JsonNumber]


class ChunkCount(msgspec.Struct, frozen=True, array_like=True):
    """How many chunks a finished update of this rank consists of."""

    step: int
    update: int | None
    chunks: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the run, the attempt, the launch of the trainer and its data-parallel rank.

    `launch` is shared by all ranks of one start of the trainer where they can agree on it, else the process' own.
    `sent_at` is the client's clock, seconds since the epoch: information only, the server's clock decides.
    """

    project: str = ""
    run: str = ""
    attempt: str
    launch: str
    rank: int = 0
    world_size: int = 1
    sent_at: float = 0.0
    wire: tuple[int, int] = (WIRE_MAJOR, WIRE_MINOR)


class Losses(msgspec.Struct, frozen=True):
    """What the sender has lost, what waits, and which policies it refused: since the start of the process.

    `refused_policies` says for a policy's hash why the client keeps its previous one.
    """

    dropped: dict[str, int] = {}
    spooled_bytes: int = 0
    queued: int = 0
    refused_policies: dict[str, str] = {}


class Report(Origin, frozen=True, kw_only=True, tag="report", tag_field="kind"):
    """The columns of one chunk of one (step, update) on one rank, and what the client decided with them.

    They come one by one or, from trmon's own client, in a parcel.
    """

    step: int
    update: int | None = None
    chunk: int = 0
    columns: dict[str, WireColumn] = {}
    histograms: dict[Pair, WireColumn] = {}
    parcel: PackedColumns | None = None
    kl_is: KlIs = "sampled"
    kl_pair: Pair | None = None
    trainer_version: int | None = None
    old_version: int | None = None
    mode: Literal["observe", "enforce"] = "observe"
    policy: str | None = None
    semantics: int = SEMANTICS_VERSION
    accepted: bytes | None = None
    scalars: dict[str, JsonNumber] = {}
    finished: list[ChunkCount] = []
    losses: Losses = Losses()


class Start(Origin, frozen=True, kw_only=True, tag="start", tag_field="kind"):
    """A process of the trainer has begun to speak; `policy` is the spec its author asked for, if any."""

    sequence: int = 0
    config: dict[str, Any] = {}
    owner: str | None = None
    tags: list[str] = []
    mode: Literal["observe", "enforce"] = "observe"
    policy: dict[str, Any] | None = None
    client: str = ""
    ranks_unverified: bool = False
    attempt_is_local: bool = False


class Scalars(Origin, frozen=True, kw_only=True, tag="scalars", tag_field="kind"):
    """Numbers the trainer logs under its own names for a step."""

    sequence: int
    step: int
    values: dict[str, JsonNumber]


class Heartbeat(Origin, frozen=True, kw_only=True, tag="heartbeat", tag_field="kind"):
    """The process lives; never stored."""

    losses: Losses = Losses()


class Pause(Origin, frozen=True, kw_only=True, tag="pause", tag_field="kind"):
    """The trainer will be silent on purpose (evaluation, checkpoint) until its next report."""

    sequence: int
    reason: str = ""


class Finish(Origin, frozen=True, kw_only=True, tag="finish", tag_field="kind"):
    """The process ends: cleanly, or by an exception."""

    sequence: int
    outcome: Literal["finished", "crashed"] = "finished"
    error: str = ""
    finished: list[ChunkCount] = []
    losses: Losses = Losses()


Message: TypeAlias = Report | Start | Scalars | Heartbeat | Pause | Finish


class Bundle(msgspec.Struct, frozen=True):
    """Many messages in one request, of one or several runs, in the order they were made."""

    messages: list[msgspec.Raw]


class PolicyUpdate(msgspec.Struct, frozen=True):
    """The policy the service wants applied from a step on (best effort), its shadows, and its content hash."""

    hash: str
    spec: dict[str, Any]
    shadows: list[dict[str, Any]] = []
    from_step: int = 0


class Ack(msgspec.Struct, frozen=True):
    """The answer to one message, sent after it is on disk.

    `status` is stored or duplicate (both durable), conflict (another payload under the same identity) or invalid;
    `accepted` has one bit a sequence, little-endian bit order; `problem` says what was wrong, naming the field.
    """

    status: Literal["stored", "duplicate", "conflict", "invalid"]
    accepted: bytes | None = None
    policy: PolicyUpdate | None = None
    advice: dict[str, Any] | None = None
    problem: str | None = None


class Acks(msgspec.Struct, frozen=True):
    """The answers to a bundle, in its order."""

    acks: list[Ack]
