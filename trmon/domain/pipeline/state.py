"""The state of a run that passes carry from batch to batch, and the context of one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import QUIET, Alert, AlertState, AlertTrack
from trmon.domain.alerts.notification import run_url
from trmon.domain.findings.judge import JudgeState
from trmon.domain.identity import BatchKey
from trmon.domain.incidents.incident import Incident
from trmon.domain.policies import PolicyRegistry
from trmon.domain.rules.condition import SignalMemory
from trmon.domain.rules.rule import Rule, RuleFinding, RuleSet
from trmon.domain.runs.run import Run
from trmon.domain.signals.run_features import FeatureState

STATE_VERSION = 9
"""The version of checkpoints; those of another version are ignored, and the state is rebuilt from the rows.

Raise it when the fields of the state change, or how rows are folded into it. A new field that older checkpoints may
lack needs a default instead.
"""

GAPS = 20
GAUGE_KEYS = 64


class PendingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row of the newest step, which is judged once the next step begins: its values may still come.

    `key` is the gauge row of the step, `of_rollout` has the values of its rollout row, `of_update` those of its last
    update.
    """

    key: BatchKey
    at: float
    of_rollout: dict[str, float] = {}
    of_update: dict[str, float] = {}


class PipelineState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run after the batch `ordinal`; folding the rows of the run in order gives the same state.

    `folded` is the newest batch folded, `steps` counts distinct steps. Of the newest step: `first_key` is its first
    batch, made at `began_at` on the trainer's clock, `step_seconds` after the previous step, and `provisional` holds
    the findings of rules until all rows of the step are known. `features` is the history that findings need, `memory`
    and `update_memory` that of the signals that rules measure over time, by gauge rows and by the last row of each
    step. `gauge_keys` are the gauge rows of the newest 64 steps. `judge` is the judgement of the steps before the
    `pending` one; `baseline` counts its configurations, `config` names the newest one, and `declared` counts the
    changes that the trainer declared. `incident` is the newest incident, also after its end; `incident_ends` counts
    steps at which incidents ended.
    A restart reads the notices after `reread_notices_after` again, since scalars and chunk counts in them may belong
    to batches that are still open. Reports up to `liveness_report_id` arrived before the newest change of the run's
    state and do not change it again; `silent_since` is the start of its silence at that time, which a start without
    any report may have moved.
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
    features: FeatureState = msgspec.field(default_factory=FeatureState)
    memory: SignalMemory = msgspec.field(default_factory=SignalMemory)
    update_memory: SignalMemory = msgspec.field(default_factory=SignalMemory)
    judge: JudgeState = msgspec.field(default_factory=JudgeState)
    pending: PendingRow | None = None
    baseline: int = 0
    config: str = ""
    declared: int = 0
    provisional: dict[str, RuleFinding] = msgspec.field(default_factory=dict)
    tracks: dict[str, AlertTrack] = msgspec.field(default_factory=dict)
    incident: Incident | None = None
    incident_ends: tuple[int, ...] = ()
    reread_notices_after: int = 0
    liveness_report_id: int = 0
    silent_since: float = 0.0

    def follows(self, key: BatchKey) -> bool:
        """Whether a batch comes after all folded batches; only then is it folded."""
        return self.folded is None or key.order > self.folded.order

    def begins_step(self, key: BatchKey) -> bool:
        """Whether a batch that follows the folded ones is the first of its step."""
        return self.folded is None or (key.attempt_id, key.step) != (self.folded.attempt_id, self.folded.step)

    @property
    def expected_step_seconds(self) -> float | None:
        """The median of the last 20 gaps between steps; None before there are 3."""
        return median(self.gaps_seconds) if len(self.gaps_seconds) >= 3 else None

    def gauge_key(self, attempt_id: int, step: int) -> BatchKey | None:
        """Return the gauge row of one of the newest steps, or None."""
        keys = reversed(self.gauge_keys)
        return next((key for key in keys if (key.attempt_id, key.step) == (attempt_id, step)), None)

    def skip_batch(self, key: BatchKey, *, ordinal: int) -> PipelineState:
        """Return the state after a batch that cannot be folded: only its place in the order is recorded."""
        skipped = structs.replace(self, ordinal=max(self.ordinal, ordinal))
        if not self.follows(key):
            return skipped
        begins = self.begins_step(key)
        found = structs.replace(skipped, folded=key, steps=self.steps + begins)
        return structs.replace(found, first_key=key, began_at=None, provisional={}) if begins else found

    def open_alerts(self) -> tuple[Alert, ...]:
        """Return the pending and firing alerts, the open incident first."""
        incident = (self.incident.alert,) if self.incident is not None and self.incident.is_open else ()
        return (*incident, *(track.alert for track in self.tracks.values() if track.alert is not None))

    def with_tracks(self, tracks: Mapping[str, AlertTrack]) -> PipelineState:
        """Return the state with new tracks of some rules; quiet tracks are dropped."""
        merged = {**self.tracks, **tracks}
        return structs.replace(self, tracks={rule: track for rule, track in merged.items() if track != QUIET})

    def with_stored_alerts(self, stored: list[Alert]) -> PipelineState:
        """Return the state with exactly the stored open alerts, which take precedence over those of a replay.

        They differ only if a row was revised, or the rules changed, after the alert was evaluated.
        """
        tracks = {alert.rule: self._track(alert) for alert in stored if not alert.is_incident}
        carried = next((alert for alert in stored if alert.is_incident), None)
        return structs.replace(self, tracks=tracks, incident=self._incident(carried))

    def _incident(self, stored: Alert | None) -> Incident | None:
        """Return the incident with its stored alert; one that is not stored as open has ended."""
        if stored is not None:
            return Incident(alert=stored) if self.incident is None else structs.replace(self.incident, alert=stored)
        if self.incident is None or not self.incident.is_open:
            return self.incident
        return structs.replace(self.incident, alert=replace(self.incident.alert, state=AlertState.RESOLVED))

    def _track(self, alert: Alert) -> AlertTrack:
        track = self.tracks.get(alert.rule, QUIET)
        same = track.alert is not None and (track.alert.identity, track.alert.state) == (alert.identity, alert.state)
        return structs.replace(track, alert=alert) if same else AlertTrack(alert=alert, holding_steps=1)

    def to_bytes(self) -> bytes:
        """Return the state as bytes for a checkpoint."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, state: bytes) -> PipelineState:
        """Return the state in a checkpoint of this STATE_VERSION. Errors: msgspec.DecodeError."""
        return _STATE_DECODER.decode(state)


_STATE_DECODER = msgspec.msgpack.Decoder(PipelineState)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """A run, its policies, rules and receivers, and the time of the pass.

    `receivers` get notifications of firing alerts; `all_receivers` are those that may have got one, also under another
    owner of the run, and get the resolved ones.
    """

    run: Run
    policies: PolicyRegistry
    rules: RuleSet
    now: float
    receivers: tuple[str, ...] = ()
    public_url: str | None = None
    all_receivers: tuple[str, ...] = ()
    runbook_base_url: str | None = None

    def runbook_url(self, rule: str) -> str | None:
        """Return the address of a runbook: the user's own one of the rule, else the run's with its values."""
        if self.runbook_base_url is not None:
            return f"{self.runbook_base_url.rstrip('/')}/{rule}"
        page = run_url(self.run, public_url=self.public_url)
        return None if page is None else f"{page}#runbook"

    def rule(self, name: str) -> Rule | None:
        """Return a rule by its name, or None."""
        return self.rules.by_name.get(name)
