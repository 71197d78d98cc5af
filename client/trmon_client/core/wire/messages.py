"""The messages that a trainer sends and the answers that it receives."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from trmon_client.core.arrays import DType
from trmon_client.core.column_schema import N_BINS, KlIs, Pair
from trmon_client.core.policies.decision import SEMANTICS_VERSION

WIRE_MAJOR = 1
WIRE_MINOR = 2


class EncodedColumn(msgspec.Struct, frozen=True, gc=False):
    """One column as little-endian bytes; without references, so that it needs no garbage collection."""

    dtype: DType
    data: bytes


class PackedColumns(msgspec.Struct, frozen=True):
    """The columns and histograms of B sequences in one compressed block, half the size, as stored.

    `data` is one zstd frame of byte-shuffled little-endian numbers: [columns, B] for each dtype, with the sorted row
    names in `names`; then the histograms of `pairs`, i8 [pairs, N_BINS].
    """

    n_sequences: int
    names: dict[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]
    data: bytes

    @property
    def n_bytes(self) -> int:
        """The size of the uncompressed numbers."""
        per_sequence = sum(int(dtype[1]) * len(names) for dtype, names in self.names.items())
        return self.n_sequences * per_sequence + len(self.pairs) * 8 * N_BINS


class PackedTurns(msgspec.Struct, frozen=True):
    """The columns of the R turns of a report's sequences, and the decision of the client on them.

    `table` has R rows, ordered by sequence: the `column_schema.TURN_COLUMNS` and, in `sequence`, the index of each
    turn's sequence. `accepted` has one bit for each turn, None if the client's policy has no turn criteria.
    """

    table: PackedColumns
    accepted: bytes | None = None


JsonNumber: TypeAlias = int | float | None | Literal["inf", "-inf", "nan"]
WireColumn: TypeAlias = EncodedColumn | list[JsonNumber]


class ChunkCount(msgspec.Struct, frozen=True, array_like=True):
    """The number of chunks of a finished update of this rank."""

    step: int
    update: int | None
    chunks: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The sender: the run, the attempt, the launch of the trainer and the data-parallel rank.

    `launch` is shared by all ranks of one start of the trainer if they can agree on it, else it is per process.
    `sent_at` is the client's clock in seconds since the epoch. The server uses its own clock, but by this one it tells
    live runs from history.
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
    """The messages that the sender has dropped or queued, and the policies it refused, since its process started.

    `refused_policies` maps the hash of a policy to the reason why the client keeps its previous one, `warnings` the
    kind of a mistake in the trainer's calls to its description.
    """

    dropped: dict[str, int] = {}
    spooled_bytes: int = 0
    queued: int = 0
    refused_policies: dict[str, str] = {}
    warnings: dict[str, str] = {}


class Report(Origin, frozen=True, kw_only=True, tag="report", tag_field="kind"):
    """The columns of one chunk of one (step, update) on one rank, and the decision of the client.

    Columns are sent one by one in `columns` or, by trmon's own client, packed in `parcel`. `chunks` is the number of
    chunks that the trainer announced for this update on this rank, None if it did not; `turns` holds the turns of the
    sequences, if the trainer gave any.
    """

    step: int
    update: int | None = None
    chunk: int = 0
    chunks: int | None = None
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
    # Left out if not set: reports without turns keep their bytes and their stored digests.
    turns: PackedTurns | msgspec.UnsetType = msgspec.UNSET


class Start(Origin, frozen=True, kw_only=True, tag="start", tag_field="kind"):
    """A process of the trainer has started; `policy` is the spec that its author requested, if any."""

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
    """Scalars that the trainer logs under its own names for a step."""

    sequence: int
    step: int
    values: dict[str, JsonNumber]


class Heartbeat(Origin, frozen=True, kw_only=True, tag="heartbeat", tag_field="kind"):
    """The process is alive; not stored."""

    losses: Losses = Losses()


class SavedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint of a step that is saved at a path; `deleted` are the steps of earlier ones that are gone."""

    step: int
    path: str
    deleted: list[int] = []


class Pause(Origin, frozen=True, kw_only=True, tag="pause", tag_field="kind"):
    """The trainer sends nothing until its next report, for example during an evaluation or a checkpoint.

    With `checkpoint` the trainer continues: it has saved one. A service that does not know the field takes it for a
    pause, which the next report ends.
    """

    sequence: int
    reason: str = ""
    checkpoint: SavedCheckpoint | msgspec.UnsetType = msgspec.UNSET


class EndReason(str, Enum):
    """How a process of the trainer ended; senders of another version may name other reasons."""

    CLOSED = "closed"
    """The monitor was closed."""
    EXITED = "exited"
    """The interpreter ended normally, and the monitor was not closed."""
    EXCEPTION = "exception"
    """An exception ended the script, or the `with` block of the monitor."""
    EXIT_CODE = "exit_code"
    """The script ended itself with a code other than 0."""
    SIGNAL = "signal"
    """A signal asked the process to end."""


class Finish(Origin, frozen=True, kw_only=True, tag="finish", tag_field="kind"):
    """The process ends, normally or by an exception.

    `reason` is a value of EndReason, empty if the sender does not know it. `error` is one line, `traceback` the last
    lines of the exception's traceback.
    """

    sequence: int
    outcome: Literal["finished", "crashed"] = "finished"
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    error: str = ""
    traceback: str = ""
    finished: list[ChunkCount] = []
    losses: Losses = Losses()


Message: TypeAlias = Report | Start | Scalars | Heartbeat | Pause | Finish


class Bundle(msgspec.Struct, frozen=True):
    """Many messages in one request, from one or several runs, in the order of creation."""

    messages: list[msgspec.Raw]


class PolicyUpdate(msgspec.Struct, frozen=True):
    """The policy that the client applies from a step on (best effort), its shadow policies and its content hash."""

    hash: str
    spec: dict[str, Any]
    shadows: list[dict[str, Any]] = []
    from_step: int = 0


class Ack(msgspec.Struct, frozen=True):
    """The answer to one message, sent after the message is durable.

    `status` is stored or duplicate (both durable), conflict (another payload with the same identity) or invalid;
    `accepted` has one bit for each sequence in little-endian bit order; `problem` describes the error and its field.
    `attempt` is which of its run's attempts a start belongs to, from 1; 0 for other messages.
    """

    status: Literal["stored", "duplicate", "conflict", "invalid"]
    accepted: bytes | None = None
    policy: PolicyUpdate | None = None
    advice: dict[str, Any] | None = None
    problem: str | None = None
    attempt: int = 0


class Acks(msgspec.Struct, frozen=True):
    """The answers to the messages of a bundle, in order."""

    acks: list[Ack]


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding raises for bytes that are not a message."""

_MISSING = re.compile(r"Object missing required field `(\w+)`")
ANY_KEY = "[...]"
"""The text that msgspec puts in a path for a key of a mapping."""


class WireError(ValueError):
    """A message is invalid: `field` names the field, the text states what is expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def wire_error_of(error: Exception) -> WireError:
    """Return a decoding exception as an error that names the field, also if the field is missing."""
    message, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    missing = _MISSING.match(message)
    if missing:
        field, message = f"{field}.{missing[1]}".lstrip("."), "is required"
    return WireError(field or "body", message)


def shorten_value(value: object) -> str:
    """Return the text of a received value, truncated for an error message."""
    text = str(value)
    return text if len(text) <= 64 else f"{text[:64]}... ({len(text)} characters)"


T = TypeVar("T")


def decodable(kind: type[T]) -> type[T]:
    """Decorate a struct or a dataclass so that `msgspec.convert` can build it in any thread."""
    msgspec.json.Decoder(kind)
    return kind
