"""Identities of runs, batches and reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from trmon.domain.errors import InvalidInput

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(name: str, *, field: str) -> str:
    """Return the name of a project or run. Errors: InvalidInput naming the field."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= 64 else f"{name[:64]}... ({len(name)} characters)"
        raise InvalidInput(
            field,
            f"{shown!r} is not a valid name: 1 to 128 letters, digits, '.', '_' or '-', not starting with a sign",
        )
    return name


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """A run by its project and its name."""

    project: str
    run: str

    def __str__(self) -> str:
        return f"{self.project}/{self.run}"

    @classmethod
    def checked(cls, project: str, run: str) -> RunKey:
        """Return the key. Errors: InvalidInput naming the field."""
        return cls(checked_name(project, field="project"), checked_name(run, field="run"))

    @classmethod
    def parse(cls, name: str, *, field: str = "RUN", otherwise: str = "") -> RunKey:
        """Return the key of PROJECT/RUN. Args: otherwise: ends the message. Errors: InvalidInput naming the field."""
        project, slash, run = name.partition("/")
        if not slash:
            raise InvalidInput(field, f"must be PROJECT/RUN, not {name!r:.260}{otherwise}")
        return cls.checked(project, run)


class BatchKey(msgspec.Struct, frozen=True):
    """The key of one optimizer update, or with `update` None of one whole rollout batch."""

    attempt_id: int
    step: int
    update: int | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: attempts in order, then steps, the rollout batch before its updates."""
        return (self.attempt_id, self.step, -1 if self.update is None else self.update)


class ReportKey(msgspec.Struct, frozen=True):
    """The key of one chunk of a batch, sent by one data-parallel rank."""

    batch: BatchKey
    rank: int
    chunk: int
