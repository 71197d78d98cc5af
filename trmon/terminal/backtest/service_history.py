"""The runs of a service as histories for a backtest, read page by page over its API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from trmon.domain.backtest.stored_history import PolicyMaskRate, StoredHistory, why_skipped
from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.runs.run import Run, RunState
from trmon_client.api import Service
from trmon_client.api.batches import BatchInfo
from trmon_client.api.runs import RunInfo
from trmon_client.core.policies.policy import Policy

MAX_STEPS = 1_000_000
"""The most that a service applies a policy to."""


def service_histories(service: Service, *, project: str | None, runs: Sequence[str]) -> Iterator[StoredHistory]:
    """Yield the named runs (PROJECT/RUN), or without names all of a project or of the service.

    Errors: ServiceError.
    """
    found = (service.run(name) for name in runs) if runs else service.runs(project)
    for run in found:
        yield StoredHistory(
            run=_run(run),
            rows=partial(_rows, service, run.name),
            apply_policy=partial(_apply_policy, service, run.name),
        )


def _rows(service: Service, run: str) -> Iterator[BatchRow]:
    return map(_row, service.batches(run))


def _apply_policy(service: Service, run: str, policy: Policy) -> PolicyMaskRate:
    effect = service.what_if(run, policy.spec(), max_steps=MAX_STEPS)
    if not effect.total.n_sequences:
        return PolicyMaskRate(policy=policy.name, skipped=why_skipped(effect.undecided))
    return PolicyMaskRate(
        policy=policy.name,
        n_sequences=effect.total.n_sequences,
        mask_rate=float(effect.total.mask_rate),
        original_mask_rate=float(effect.then.mask_rate),
    )


def _run(info: RunInfo) -> Run:
    return Run(
        id=1,
        key=RunKey(info.project, info.run),
        state=RunState(info.state),
        owner=info.owner,
        tags=info.tags,
        config=info.config,
        mode=info.mode,
        created_at=info.created_at,
        last_report_at=info.last_report_at,
        last_step=info.last_step,
        attempt_id=None,
        archived=info.archived,
    )


def _row(info: BatchInfo) -> BatchRow:
    return BatchRow(
        run_id=1,
        key=BatchKey(info.attempt_id, info.step, info.update),
        ordinal=info.ordinal,
        closed_at=info.closed_at,
        n_sequences=info.n_sequences,
        n_tokens=info.n_tokens,
        n_ranks=info.n_ranks,
        missing_ranks=info.missing_ranks,
        complete=info.complete is not False,
        unconfirmed=info.complete is None,
        revised=info.revised,
        mode=info.mode,
        primary_pair=info.primary_pair,  # type: ignore[arg-type]
        kl_is=info.kl_is,  # type: ignore[arg-type]
        policy_hash=info.policy_hash,
        mismatches=info.mismatches,
        last_report_id=info.ordinal,
        signals={name: float(value) for name, value in info.signals.items()},
        scalars={name: float(value) for name, value in info.scalars.items()},
        quarantined=tuple(msgspec.convert(msgspec.to_builtins(part), Quarantined) for part in info.quarantined),
    )
