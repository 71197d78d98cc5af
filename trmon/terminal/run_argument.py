"""Arguments of commands: PROJECT/RUN, and steps as A:B."""

from __future__ import annotations

import re

from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey

STEPS = re.compile(r"(?=.)(\d{0,18})(:?)((?<=:)\d{0,18})?")


def parse_run_name(name: str, *, otherwise: str = "") -> RunKey:
    """Return the key of PROJECT/RUN. Args: otherwise: the alternative that the message offers. Errors: InvalidInput."""
    project, slash, run = name.partition("/")
    if not slash:
        raise InvalidInput("RUN", f"must be PROJECT/RUN, not {name!r}{otherwise}")
    return RunKey.checked(project, run)


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last step of A:B, or of one step A; None leaves an end open. Errors: InvalidInput."""
    match = STEPS.fullmatch(text)
    if match is None:
        raise InvalidInput("--steps", f"must be A:B, A:, :B or A, not {text!r:.64}")
    first, colon, last = match.groups()
    ends = int(first) if first else None, int(last) if last else None
    return ends if colon else (ends[0], ends[0])
