"""The format of a recording: a folder with one .npz file for each call of `log_batch`, and this index of them."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import msgspec

from trmon_client.core.inputs.checked_inputs import POLICIES
from trmon_client.core.policies.decision import SEMANTICS_VERSION
from trmon_client.core.wire.messages import decodable

INDEX_FILE = "recording.json"
FORMAT_VERSION = 1
LABELS = ("advantages", "rewards", "group_ids", "versions", "truncated")
TURN_IDS = "turn_ids"
ARRAYS = (*POLICIES, "mask", *LABELS, TURN_IDS, "token_ids", "accepted")
"""The arrays of a call, by the names of `log_batch`, [B, T] or [B]; `accepted` is the decision on sequences."""

RECORDED = "recorded"
"""The beginning of the kind under which a trainer tells the service which steps it has written."""
_RECORDED_TEXT = re.compile(r"steps (\d+) to (\d+) are recorded in (.*)", re.DOTALL)


class RecordedSteps(NamedTuple):
    """Which steps a trainer has written, and the folder of its run."""

    first: int
    last: int
    folder: str

    @property
    def told(self) -> tuple[str, str]:
        """The kind and the text that tell the service of them."""
        return (
            f"{RECORDED} {self.first}-{self.last}",
            f"steps {self.first} to {self.last} are recorded in {self.folder}",
        )

    @staticmethod
    def of(text: str) -> RecordedSteps | None:
        """Return the steps that a text tells of; None if it is another one."""
        found = _RECORDED_TEXT.fullmatch(text)
        return None if found is None else RecordedSteps(int(found[1]), int(found[2]), found[3])


SampleChoice = Literal["best", "worst", "random"]


class RecordedText(msgspec.Struct, frozen=True):
    """The text of one sequence of a call, and why it was chosen."""

    sequence: int
    choice: SampleChoice
    text: str


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of `log_batch`: its file, its place in the run, and the policy that decided.

    `kl_is` is that of the call's columns: where it is not `sampled`, logits were given, which are not recorded.
    """

    file: str
    step: int
    update: int | None
    chunk: int
    mode: str
    policy: dict[str, Any]
    kl_is: str
    trainer_version: int | None = None
    old_version: int | None = None
    texts: tuple[RecordedText, ...] = ()


@decodable
class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The index of a recording: whose it is, why it was written, and its calls, oldest first.

    `reason` is `incident` or how the process ended; `written_at` seconds since 1970.
    """

    project: str
    run: str
    rank: int
    world_size: int
    reason: str
    written_at: float
    client_version: str
    incident_since: int | None = None
    calls: tuple[RecordedCall, ...] = ()
    format: int = FORMAT_VERSION
    semantics: int = SEMANTICS_VERSION
