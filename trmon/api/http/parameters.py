"""Parameters of requests: runs, signals, steps, and pages of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from fastapi import Depends, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query as QueryParameter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.domain.errors import InvalidInput, UnreadParameter, did_you_mean
from trmon.domain.identity import BatchKey, RunKey
from trmon_client.core.redaction import redact_values


class RequestBody(BaseModel):
    """The base of what a request sends as JSON, without secrets; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, given: Any) -> Any:
        return redact_values(given)


Author = Annotated[
    str | None, Field(min_length=1, max_length=128, description="A name beside the token's, which is always shown.")
]

UNREAD_PARAMETERS = (
    "A query parameter that the operation does not list is answered with 422, as is a repeated one; an array may be "
    "repeated, and its values may be separated by commas."
)
"""What OpenAPI says of `check_query`, once for all operations."""


async def check_query(request: Request) -> None:
    """Refuse a query parameter that the route does not read. Errors: UnreadParameter."""
    if not request.scope["query_string"]:
        return
    known = _query_parameters(request.scope["route"])
    for name, n_values in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            message = f"{name!r:.130} is not a parameter of this route{did_you_mean(name, known)}"
            raise UnreadParameter(name, message if known else f"{message}; it has none")
        if n_values > 1 and not known[name]:
            raise UnreadParameter(name, f"is given {n_values} times; it has one value")


def _query_parameters(route: APIRoute) -> dict[str, bool]:
    """Return the query parameters that a route and its dependencies read, and whether each takes a list."""
    fields = [field for field in get_flat_params(route.dependant) if isinstance(field.field_info, QueryParameter)]
    return {field.alias: _takes_list(field.field_info.annotation) for field in fields}


def _takes_list(kind: object) -> bool:
    return any(get_origin(part) is list for part in (kind, *get_args(kind)))


def split_run_keys(names: Sequence[str]) -> list[RunKey]:
    """Return the runs that PROJECT/RUN names, in order. Errors: InvalidInput."""
    return [RunKey.parse(name, field="runs", otherwise="; separate several by commas") for name in _split(names)]


def _split(names: Sequence[str]) -> list[str]:
    return [name.strip() for name in ",".join(names).split(",") if name.strip()]


async def _run_key(project: str, run: str) -> RunKey:
    return RunKey.checked(project, run)


Named = Annotated[RunKey, Depends(_run_key)]
"""The run named by the path."""


MAX_NAMES = 128

Names = Annotated[list[str] | None, Query(max_length=MAX_NAMES, description="Names.")]


def split_names(names: Sequence[str] | None) -> list[str]:
    """Return the names in order without duplicates. Errors: InvalidInput for too many."""
    found = list(dict.fromkeys(_split(names or ())))
    if len(found) > MAX_NAMES:
        raise InvalidInput("names", f"has {len(found)} names; at most {MAX_NAMES} are allowed")
    return found


def check_known(names: Iterable[str], known: Collection[str], *, kind: str, listed_by: str) -> None:
    """Raise InvalidInput for the first name that is not known. Args: listed_by: where a caller finds them."""
    for name in names:
        if name not in known:
            message = f"{name!r:.130} is not a known {kind}{did_you_mean(name, known)}; {listed_by} lists them"
            raise InvalidInput("names", message)


Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items per page.")]
After = Annotated[str | None, Query(max_length=256, description="The `next` of the previous page.")]


MAX_POINTS = 200

FromStep = Annotated[int | None, Query(alias="from", ge=0, lt=1 << 62)]
ToStep = Annotated[int | None, Query(alias="to", ge=0, lt=1 << 62)]
OfAttempt = Annotated[int | None, Query(ge=0, lt=1 << 62, description="Only this attempt, by its id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSelection:
    """A run, and the gauge rows of the selected steps, oldest first."""

    run_id: int
    batches: list[BatchKey]


def _select_steps(
    key: Named,
    access: Reader,
    service: Service,
    from_step: FromStep = None,
    to_step: ToStep = None,
    attempt_id: OfAttempt = None,
    points: Annotated[int, Query(ge=1, le=MAX_POINTS, description="Maximum number of steps, evenly spaced.")] = 100,
) -> StepSelection:
    run = service.store.runs.get(key, access=access)
    steps = service.store.signals.series(
        run.id, names=(), access=access, attempt_id=attempt_id, from_step=from_step, to_step=to_step, points=points
    )
    newest = zip(steps.attempt_id.tolist(), steps.step.tolist(), steps.update.tolist(), strict=True)
    keys = [BatchKey(attempt_id, step, None if update < 0 else update) for attempt_id, step, update in newest]
    return StepSelection(run_id=run.id, batches=keys)


SelectedSteps = Annotated[StepSelection, Depends(_select_steps)]
"""The steps that a request selects. Errors: NotFound for a run that the caller may not see."""
