"""Where the command gets a diagnosis from: a running service, or a log line in a file."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec

from trmon.app.diagnosis.schemas import DiagnosisOut, IgnoredOut
from trmon.domain.diagnosis import History, diagnose, translate
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.identity import RunKey

TIMEOUT_SECONDS = 60.0


def of_run(name: str, *, url: str, token: str | None) -> DiagnosisOut:
    """Return the diagnosis of PROJECT/RUN that the service at a URL gives. Errors: InvalidInput, NotReady."""
    project, slash, run = name.partition("/")
    if not slash:
        raise InvalidInput("RUN", f"is PROJECT/RUN, and is {name!r}; or give --metrics FILE")
    key = RunKey.checked(project, run)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    path = f"/api/v1/runs/{key}/diagnosis"
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            answer = client.get(path)
    except httpx.HTTPError as error:
        raise NotReady(f"no service answers at {url}: {error}; start one or give --url") from error
    if answer.status_code != httpx.codes.OK:
        raise NotReady(f"{url} answered {answer.status_code}: {answer.text[:200]}")
    return DiagnosisOut.model_validate_json(answer.content)


def of_metrics(file: Path) -> DiagnosisOut:
    """Return the diagnosis of a log line: a JSON object of signals under our, verl's or TRL's names.

    Errors: InvalidInput where the file cannot be read as one.
    """
    try:
        line = translate(msgspec.json.decode(file.read_bytes(), type=dict[str, object]))
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("--metrics", f"{file} must be a JSON object of numbers by name: {error}") from error
    found = diagnose(History.of_signals(line.signals, step=line.step))
    return DiagnosisOut.of(found, ignored=[IgnoredOut(name=item.name, why=item.why) for item in line.ignored])
