"""The comparison of runs."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool

from trmon.api.fleet import fleet_responses
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import split_run_keys
from trmon.api.policies import policy_info
from trmon.domain.access import Access
from trmon.domain.comparison import (
    ComparedSignals,
    SiblingCandidate,
    are_comparable,
    compare_configs,
    divergence_sentence,
    divergences,
    healthy_sibling,
)
from trmon.domain.errors import InvalidInput, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import Run
from trmon_client.api.comparison import ComparedRun, ComparisonInfo
from trmon_client.core.column_schema import PRIMARY_ORDER

router = APIRouter(prefix="/api/v1", tags=["runs"], route_class=AnswerRoute)

Array: TypeAlias = Any

MAX_RUNS = 8
MAX_CANDIDATES = 100
"""The newest runs of the project among which a sibling is sought."""
OWN_SIGNALS = (
    *("reward_mean", "sampled_entropy", "entropy", "response_length_mean", "grad_norm", "loss"),
    *("mask_rate", "version_lag_mean"),
)
PAIR_SIGNALS = ("kl_k3", "ess_token", "prob_pearson")
"""Read of the first pair that a run has, and named without it."""
LOGS = ("kl_k3", "grad_norm")


@router.get("/compare")
async def compare_runs(
    access: Reader,
    service: Service,
    runs: Annotated[
        list[str],
        Query(
            description="Two to eight runs as PROJECT/RUN; a single one is compared with its healthy sibling: the "
            "sound run of its project whose configuration differs least."
        ),
    ],
    by: Annotated[
        Literal["step", "time"], Query(description="Align by step, or by the time since the start.")
    ] = "step",
    points: Annotated[int, Query(ge=1, le=2000, description="Maximum number of points of each run.")] = 400,
) -> ComparisonInfo:
    """Compare runs: verdicts, differences of configuration and policy, signals, and where each leaves the first."""
    keys = _keys(runs)
    # Reading many long histories takes seconds: comparisons must not occupy all threads that serve other requests.
    async with service.what_ifs:
        return await run_in_threadpool(_compare, service, keys, access=access, by_time=by == "time", points=points)


def _keys(given: list[str]) -> list[RunKey]:
    keys = split_run_keys(given)
    if not keys:
        raise InvalidInput(
            "runs", "is empty; name two to eight runs as PROJECT/RUN, or one to compare with its sibling"
        )
    if len(keys) > MAX_RUNS:
        raise InvalidInput("runs", f"has {len(keys)} runs; at most {MAX_RUNS} are compared")
    if twice := {str(key) for key in keys if keys.count(key) > 1}:
        raise InvalidInput("runs", f"has {min(twice)!r} twice; a run is compared with others")
    return keys


def _compare(service: Components, keys: list[RunKey], *, access: Access, by_time: bool, points: int) -> ComparisonInfo:
    runs = [service.store.runs.get(key, access=access) for key in keys]
    proposed = len(runs) == 1
    if proposed:
        runs.append(_sibling(service, runs[0], access=access))
    policies = [service.store.policies.current(run.id, access=access) for run in runs]
    fleet = fleet_responses(service, runs, access=access)
    read = [_series(service, run, access=access, points=points) for run in runs]
    courses = [ComparedSignals(places=elapsed, signals=steps.signals) if by_time else steps for steps, elapsed in read]
    compared = []
    for i, (steps, elapsed) in enumerate(read):
        parted = divergences(courses[0], courses[i], logs=LOGS) if i else []
        is_long_enough = are_comparable(courses[0], courses[i])
        compared.append(
            ComparedRun.from_fields(
                fleet=fleet[i],
                policy=policy_info(policies[i]),
                created_at=runs[i].created_at,
                step=steps.places.tolist(),
                elapsed_seconds=elapsed.tolist(),
                signals={name: values.tolist() for name, values in steps.signals.items()},
                partings=parted,
                sentence=divergence_sentence(parted, by_time=by_time, is_long_enough=is_long_enough) if i else "",
            )
        )
    return ComparisonInfo.from_fields(
        by="time" if by_time else "step",
        proposed=proposed,
        same_policy=len({version.policy.hash for version in policies}) == 1,
        config=compare_configs([run.config for run in runs]),
        runs=compared,
    )


def _sibling(service: Components, run: Run, *, access: Access) -> Run:
    """Return the healthy sibling. Errors: NotFound without one."""
    others = service.store.runs.list(access=access, project=run.key.project, limit=MAX_CANDIDATES).items
    judged = service.verdicts.of(others, access=access, now=time.time())
    found = healthy_sibling(
        run,
        [
            SiblingCandidate(run=other, verdict=judged[other.id].verdict, judgement=judged[other.id].outlook.judgement)
            for other in others
        ],
    )
    if found is None:
        raise NotFound("sound run to compare with", f"of {run.key.project} beside {run.key.run}; name one: runs=A,B")
    return found


def _series(service: Components, run: Run, *, access: Access, points: int) -> tuple[ComparedSignals, Array]:
    """Return the signals of a run over its steps, and the seconds from its creation until each step closed."""
    known = set(service.store.signals.names(run.id, access=access))
    names = {name: name for name in OWN_SIGNALS if name in known}
    for stem in PAIR_SIGNALS:
        if found := of_first_pair(stem, known):
            names[stem] = found
    series = service.store.signals.series(run.id, names=[*names.values()], access=access, points=points)
    signals = {label: series.bands[name].mean for label, name in names.items()}
    return ComparedSignals(places=series.step, signals=signals), series.closed_at - run.created_at


def of_first_pair(stem: str, known: Collection[str]) -> str | None:
    """Return the signal of a pair by its full name, of the first pair that has it among the known names."""
    return next((f"{pair}_{stem}" for pair in PRIMARY_ORDER if f"{pair}_{stem}" in known), None)
