"""Silences: made, listed and ended."""

from __future__ import annotations

import time
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.pages import After, Limit, PageOut
from trmon.domain.alerts.silences import MAX_PATTERN_LENGTH, Matcher, MatchOperator, Silence, check_matchers
from trmon.domain.model.access import Access, Scope
from trmon.domain.model.identity import checked_name

router = APIRouter(prefix="/api/v1/silences", tags=["alerts"])

MAX_SECONDS = 366 * 86_400.0


class MatcherIO(BaseModel):
    """A condition on a label: project, run, owner, rule, severity, or one of the rule's own."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field(max_length=MAX_PATTERN_LENGTH)
    operator: MatchOperator = Field(MatchOperator.EQUAL, description="`~` and `!~` take shell patterns, e.g. `qwen*`.")
    value: str = Field(max_length=MAX_PATTERN_LENGTH)


class SilenceIn(BaseModel):
    """A silence to make; all of its matchers must hold."""

    model_config = ConfigDict(extra="forbid")

    project: str | None = Field(None, description="Only alerts of this project; without, of all the caller may see.")
    matchers: list[MatcherIO] = Field(min_length=1)
    seconds: float = Field(gt=0, le=MAX_SECONDS, description="How long it lasts.")
    starts_at: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="When it begins; now if it is not given."
    )
    author: str | None = Field(None, min_length=1, max_length=128, description="Who; without, the token's name.")
    note: str = Field("", max_length=2000)

    def silence(self, *, access: Access, now: float) -> Silence:
        """Return the silence. Errors: InvalidInput; Forbidden for another project."""
        access.require(Scope.ADMIN, project=self.project)
        project = access.project if self.project is None else checked_name(self.project, field="project")
        starts_at = now if self.starts_at is None else self.starts_at
        return Silence(
            id=0,
            project=project,
            matchers=check_matchers(tuple(Matcher(**matcher.model_dump()) for matcher in self.matchers)),
            author=self.author or access.name,
            note=self.note,
            starts_at=starts_at,
            ends_at=starts_at + self.seconds,
        )


class SilenceOut(BaseModel):
    """A silence; one that has ended stays listed."""

    id: int
    project: str | None
    matchers: list[MatcherIO]
    author: str
    note: str
    starts_at: float
    ends_at: float

    @classmethod
    def of(cls, silence: Silence) -> Self:
        """Return a silence as answered."""
        given = {name: getattr(silence, name) for name in cls.model_fields if name != "matchers"}
        matchers = [MatcherIO(label=m.label, operator=m.operator, value=m.value) for m in silence.matchers]
        return cls(matchers=matchers, **given)


@router.post("", status_code=201)
def create_silence(wanted: SilenceIn, access: Admin, service: Service) -> SilenceOut:
    """Tell nobody of the alerts that match, for a while; they are recorded and shown all the same."""
    return SilenceOut.of(service.store.silences.create(wanted.silence(access=access, now=time.time())).result())


@router.get("")
def list_silences(
    access: Reader,
    service: Service,
    ended: Annotated[bool, Query(description="List those that have ended too.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[SilenceOut]:
    """List the silences that have not ended, newest first."""
    ending_after = None if ended else time.time()
    page = service.store.silences.list(access=access, ending_after=ending_after, after=after, limit=limit)
    return PageOut(items=[SilenceOut.of(silence) for silence in page.items], next=page.next)


@router.delete("/{silence_id}", status_code=204)
def end_silence(silence_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """End a silence now; whoever should hear of what still fires does so within seconds."""
    service.store.silences.expire(silence_id, access=access, now=time.time()).result()
