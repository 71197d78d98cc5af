"""Validate a decoded message, decide its sequences if the client did not, and pack it for the store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import PreparedMessage
from trmon.domain.policies import DEFAULT_POLICY
from trmon.ingest.canonical_form import canonical_message
from trmon.store.rows import report_codec
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError

PolicyOf = Callable[[RunKey], Policy]
"""Returns the current policy of a run, also for a run that does not exist yet."""


def validate_message(message: wire.Message, key: RunKey, *, policy_of: PolicyOf) -> PreparedMessage:
    """Return a message ready for the store. Errors: WireError naming the invalid column."""
    message = canonical_message(message, key)
    if isinstance(message, wire.Report):
        return _prepare_report(message, key, policy_of=policy_of)
    if isinstance(message, wire.Heartbeat):
        return PreparedMessage(key=key, message=message, digest=b"", payload=b"")
    return PreparedMessage(
        key=key, message=message, digest=report_codec.message_digest(message), payload=report_codec.pack_notice(message)
    )


def _prepare_report(report: wire.Report, key: RunKey, *, policy_of: PolicyOf) -> PreparedMessage:
    parcel, n_tokens = wire.storable_columns(report)
    summary = msgspec.structs.replace(report, columns={}, histograms={}, parcel=None)
    stored, accepted = summary, report.accepted
    if accepted is None:
        policy, accepted = _decide(wire.columns_of_packed(summary, parcel), policy_of(key))
        stored = msgspec.structs.replace(summary, policy=policy.hash)
    return PreparedMessage(
        key=key,
        message=summary,
        digest=report_codec.report_digest(summary, parcel=parcel),
        payload=report_codec.pack_report(stored, parcel=parcel),
        n_sequences=parcel.n_sequences,
        n_tokens=n_tokens,
        accepted=accepted,
    )


def _decide(columns: Columns, policy: Policy) -> tuple[Policy, bytes]:
    """Return a policy and its accepted bits; the default policy if the columns lack what the policy needs."""
    try:
        return policy, wire.pack_bits(decide(columns, policy).accepted)
    except PolicyError:
        default = preset(DEFAULT_POLICY)
        return default, wire.pack_bits(decide(columns, default).accepted)
