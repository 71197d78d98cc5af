"""A run's mind: what the pipeline remembers from batch to batch, a cache of what the run's rows say."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import Alert
from trmon.domain.alerts.transitions import QUIET, AlertTrack
from trmon.domain.model.identity import BatchKey
from trmon.domain.rules.rule import RuleFinding
from trmon.domain.rules.signal_reader import SignalMemory
from trmon.domain.signals.windows import Baseline, SignalWindow

STATE_VERSION = 2
"""Raised whenever the mind's form, or how rows are folded into it, changes: older checkpoints are then not read.

A field that older checkpoints can do without has a default instead.
"""

GAPS = 20
GAUGE_KEYS = 64


class PipelineState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run after the batch `ordinal`; folding the run's rows in order gives it again.

    `folded` is the newest batch folded, `steps` counts distinct steps. Of the newest step: `first_key` is its first
    batch, made at `began_at` on the trainer's clock, `step_seconds` after the step before, and `provisional` holds
    what rules say until all of it is known. `memory` and `update_memory` are the past of the signals that rules measure
    over time, by gauge rows and by the last row of each step.
    `gauge_keys` are the gauge rows of the newest 64 steps. A restart reads notices after `recall_from` once more:
    scalars and chunk counts in them may still be waited for.
    Reports up to `heard_through` came before the run's newest change of state, and change it no more; its silence was
    counted from `silent_since` then, which a start without any report may have moved.
    """

    ordinal: int = 0
    steps: int = 0
    folded: BatchKey | None = None
    first_key: BatchKey | None = None
    began_at: float | None = None
    step_seconds: float = float("nan")
    has_rollout_row: bool = False
    gauge_keys: tuple[BatchKey, ...] = ()
    gaps_seconds: tuple[float, ...] = ()
    response_length: SignalWindow = msgspec.field(default_factory=SignalWindow)
    ess_seq: Baseline = msgspec.field(default_factory=Baseline)
    memory: SignalMemory = msgspec.field(default_factory=SignalMemory)
    update_memory: SignalMemory = msgspec.field(default_factory=SignalMemory)
    provisional: dict[str, RuleFinding] = msgspec.field(default_factory=dict)
    tracks: dict[str, AlertTrack] = msgspec.field(default_factory=dict)
    recall_from: int = 0
    heard_through: int = 0
    silent_since: float = 0.0

    def follows(self, key: BatchKey) -> bool:
        """Whether a batch comes after everything folded; only then is it folded."""
        return self.folded is None or key.order > self.folded.order

    def begins_step(self, key: BatchKey) -> bool:
        """Whether a batch that follows is the first of its step."""
        return self.folded is None or (key.attempt_id, key.step) != (self.folded.attempt_id, self.folded.step)

    @property
    def expected_step_seconds(self) -> float | None:
        """The median of the last 20 gaps between steps; None before there are 3."""
        return median(self.gaps_seconds) if len(self.gaps_seconds) >= 3 else None

    def gauge_key(self, attempt_id: int, step: int) -> BatchKey | None:
        """Return the gauge row of one of the newest steps, as far as it is known."""
        for key in reversed(self.gauge_keys):
            if (key.attempt_id, key.step) == (attempt_id, step):
                return key
        return None

    def passing(self, key: BatchKey, *, ordinal: int) -> PipelineState:
        """Return the mind past a batch that cannot be folded: it has a place in the order, and nothing is learned."""
        passed = structs.replace(self, ordinal=max(self.ordinal, ordinal))
        if not self.follows(key):
            return passed
        begins = self.begins_step(key)
        found = structs.replace(passed, folded=key, steps=self.steps + begins)
        return structs.replace(found, first_key=key, began_at=None, provisional={}) if begins else found

    def settled(self) -> PipelineState:
        """Return the mind once what the rules said of the newest step has become final."""
        return structs.replace(self, provisional={})

    def open_alerts(self) -> tuple[Alert, ...]:
        """Return the pending and firing alerts."""
        return tuple(track.alert for track in self.tracks.values() if track.alert is not None)

    def tracking(self, tracks: Mapping[str, AlertTrack]) -> PipelineState:
        """Return the mind with these tracks instead of those of the same rules; quiet ones are forgotten."""
        merged = {**self.tracks, **tracks}
        return structs.replace(self, tracks={rule: track for rule, track in merged.items() if track != QUIET})

    def believing(self, stored: list[Alert]) -> PipelineState:
        """Return the mind with exactly these open alerts: what was written outweighs what a replay concludes.

        They differ only where a row was revised, or the rulebook changed, after the alert was judged.
        """
        tracks = {alert.rule: self._track(alert) for alert in stored}
        return structs.replace(self, tracks=tracks)

    def _track(self, alert: Alert) -> AlertTrack:
        track = self.tracks.get(alert.rule, QUIET)
        same = track.alert is not None and (track.alert.identity, track.alert.state) == (alert.identity, alert.state)
        return structs.replace(track, alert=alert) if same else AlertTrack(alert=alert, holding_steps=1)

    def to_bytes(self) -> bytes:
        """Return the mind as a checkpoint keeps it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, state: bytes) -> PipelineState:
        """Return the mind of a checkpoint of this MIND_VERSION. Errors: msgspec.DecodeError."""
        return _MIND.decode(state)


_MIND = msgspec.msgpack.Decoder(PipelineState)
