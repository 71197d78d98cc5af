"""Preparation: a decoded message is checked, decided if its sender did not, and packed for the disk."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import PreparedMessage
from trmon.domain.policies.policy_version import DEFAULT_POLICY
from trmon.ingest.canonical_form import canonical_message
from trmon.store.rows import report_codec
from trmon_client.core import wire
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.acceptance import Policy, PolicyError, decide, preset

PolicyOf = Callable[[RunKey], Policy]
"""Returns the current policy of a run, known or not."""


def validate_message(message: wire.Message, key: RunKey, *, policy_of: PolicyOf) -> PreparedMessage:
    """Return a message on its way to the disk. Errors: WireError naming the column that is wrong."""
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
    said = msgspec.structs.replace(report, columns={}, histograms={}, parcel=None)
    stored, accepted = said, report.accepted
    if accepted is None:
        policy, accepted = _decide(wire.columns_of_packed(said, parcel), policy_of(key))
        stored = msgspec.structs.replace(said, policy=policy.hash)
    return PreparedMessage(
        key=key,
        message=said,
        digest=report_codec.report_digest(said, parcel=parcel),
        payload=report_codec.pack_report(stored, parcel=parcel),
        n_sequences=parcel.n_sequences,
        n_tokens=n_tokens,
        accepted=accepted,
    )


def _decide(columns: Columns, policy: Policy) -> tuple[Policy, bytes]:
    """Return the bits of a policy, or of the default one where the columns lack what the policy needs."""
    try:
        return policy, wire.pack_bits(decide(columns, policy).accepted)
    except PolicyError:
        default = preset(DEFAULT_POLICY)
        return default, wire.pack_bits(decide(columns, default).accepted)
