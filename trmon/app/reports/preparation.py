"""Preparation: a decoded message is checked, decided if its sender did not, and packed for the disk."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trmon.app.reports.canonical import canonical
from trmon.domain.identity import RunKey
from trmon.domain.intake import Intake
from trmon.domain.policies.version import DEFAULT_POLICY
from trmon.store import codec
from trmon_client.core import wire
from trmon_client.core.acceptance import Policy, PolicyError, decide, preset
from trmon_client.core.columns import Columns

PolicyOf = Callable[[RunKey], Policy]
"""Returns the current policy of a run, known or not."""


def prepare(message: wire.Message, key: RunKey, *, policy_of: PolicyOf) -> Intake:
    """Return a message on its way to the disk. Errors: WireError naming the column that is wrong."""
    message = canonical(message, key)
    if isinstance(message, wire.Report):
        return _prepare_report(message, key, policy_of=policy_of)
    if isinstance(message, wire.Heartbeat):
        return Intake(key=key, message=message, digest=b"", payload=b"")
    return Intake(key=key, message=message, digest=codec.digest(message), payload=codec.pack_notice(message))


def _prepare_report(report: wire.Report, key: RunKey, *, policy_of: PolicyOf) -> Intake:
    parcel, n_tokens = wire.storable(report)
    said = msgspec.structs.replace(report, columns={}, histograms={}, parcel=None)
    stored, accepted = said, report.accepted
    if accepted is None:
        policy, accepted = _decide(wire.columns_of(said, parcel), policy_of(key))
        stored = msgspec.structs.replace(said, policy=policy.hash)
    return Intake(
        key=key,
        message=said,
        digest=codec.report_digest(said, parcel=parcel),
        payload=codec.pack(stored, parcel=parcel),
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
