"""Reads and changes what a service knows of runs; for notebooks, scripts and the command `trmon`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from trmon_client.api.alerts import AlertInfo, RuleInfo
from trmon_client.api.answers import ItemPage, decode_answer
from trmon_client.api.batches import BatchInfo, SequencesInfo
from trmon_client.api.budget import BudgetInfo
from trmon_client.api.comparison import ComparisonInfo
from trmon_client.api.diagnosis import DiagnosisInfo, RunbookInfo
from trmon_client.api.errors import IncompatibleService, NotFoundError
from trmon_client.api.policies import PolicyInfo, WhatIfInfo
from trmon_client.api.runs import NoteInfo, RunDetails, RunInfo, RunStatus
from trmon_client.config.service_address import NAME, resolve_service
from trmon_client.config.version import __version__

if TYPE_CHECKING:  # with numpy, which lists of runs need not load
    from trmon_client.api.signals import RunComparison, SeriesAnswer, SignalHistory

T = TypeVar("T")
Steps = tuple[int | None, int | None]
"""The first and the last step, both included; None leaves an end open."""
ALL_STEPS: Steps = (None, None)
RUNS = "/api/v1/runs"
MAX_KNOWN = 1000
"""Runs that a misspelt name is compared with, the newest."""
WHAT_IF_SECONDS = 3600.0
"""Millions of sequences take minutes."""


class Service:
    """A running service; runs are named PROJECT/RUN, and lists are read page by page as they are iterated over.

    Args: url, token: by default TRMON_URL and TRMON_TOKEN; timeout_seconds: of one answer.
    Errors: ValueError naming the argument and its variable. Every method raises ServiceError; `errors` lists its kinds.
    """

    page_items = 500
    """Of a list, in one answer."""
    max_rows = 10_000
    """Of a history, in one answer: the most that a service gives."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        from trmon_client.api.http_client import HttpClient  # with urllib3, which `trmon top --help` need not load

        self.url, known_token = resolve_service(url=url, token=token, environment=os.environ)
        self._http = HttpClient(self.url, token=known_token, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._http.close()

    def runs(
        self,
        project: str | None = None,
        *,
        state: str | None = None,
        tag: str | None = None,
        owner: str | None = None,
        archived: bool = False,
    ) -> Iterator[RunInfo]:
        """Yield the runs, newest first. Args: archived: the archived ones instead."""
        query = {"project": project, "state": state, "tag": tag, "owner": owner, "archived": archived or None}
        return self._list(RUNS, RunInfo, query)

    def run(self, run: str) -> RunInfo:
        """Return a run."""
        return self._read_run(run, RunInfo)

    def statuses(self, project: str | None = None) -> Iterator[RunStatus]:
        """Yield the runs with their verdicts and open alerts, newest first."""
        return self._list("/api/v1/fleet", RunStatus, {"project": project})

    def status(self, run: str) -> RunStatus:
        """Return a run with its verdict and open alerts."""
        return self._read_run(run, RunDetails).status

    def diagnosis(self, run: str) -> DiagnosisInfo:
        """Return what is wrong with a run, since when, and what to change; NotFoundError before its first step."""
        return self._read_run(run, DiagnosisInfo, "/diagnosis")

    def runbook(self, run: str) -> RunbookInfo:
        """Return what to do about the problem of a run, step by step; NotFoundError where it has none."""
        return self._read_run(run, RunbookInfo, "/runbook")

    def budget(self, run: str) -> BudgetInfo:
        """Return which mismatch and lag a run can tolerate, the split of its drift, and the advice for its pipeline."""
        return self._read_run(run, BudgetInfo, "/budget")

    def alerts(
        self, *, project: str | None = None, run: str | None = None, state: str | None = None
    ) -> Iterator[AlertInfo]:
        """Yield alerts and incidents, newest first. Args: state: pending, firing or resolved."""
        name = None
        if run is not None:
            project, name = _split_name(run)
        return self._list("/api/v1/alerts", AlertInfo, {"project": project, "run": name, "state": state})

    def incidents(
        self, *, project: str | None = None, run: str | None = None, state: str | None = None
    ) -> Iterator[AlertInfo]:
        """Yield the alerts that carry incidents, newest first. Args: state: firing or resolved."""
        return (alert for alert in self.alerts(project=project, run=run, state=state) if alert.is_incident)

    def signal_names(self, run: str) -> list[str]:
        """Return the names of the signals and scalars of a run's newest steps."""
        return self._read_run(run, list[str], "/signals/names")

    def signals(
        self,
        run: str,
        names: str | Iterable[str],
        steps: Steps = ALL_STEPS,
        *,
        points: int | None = None,
        updates: Literal["gauge", "all"] = "gauge",
        attempt_id: int | None = None,
    ) -> SignalHistory:
        """Return signals of a run, one row a step, however many there are.

        Args: points: at most so many rows, each of which then sums up several steps; updates: "all" has a row for
        every optimizer update; attempt_id: only this attempt, by default the history without what restarts redid.
        """
        from trmon_client.api.signals import join_series

        names = [names] if isinstance(names, str) else list(dict.fromkeys(names))
        query = {"names": ",".join(names), "updates": updates, "attempt_id": attempt_id}
        if points is None:
            parts = list(self._exact_series(run, query, steps))
        else:
            parts = [self._series(run, query | {"points": points}, steps)]
        return join_series(run, names, parts)

    def batches(self, run: str) -> Iterator[BatchInfo]:
        """Yield the closed batches of a run with all their signals and scalars, oldest first, a page in memory."""
        request = partial(self._request_run, run, "GET", "/batches")
        yield from self._items(request, BatchInfo, {"order": "oldest"})

    def sequences(
        self, run: str, step: int, names: Iterable[str] = (), *, first: int = 0, limit: int = 256
    ) -> SequencesInfo:
        """Return sequences of a step's batch with their decisions. Args: names: of columns, by default all of them."""
        query = {"names": ",".join(names) or None, "first": first, "limit": limit}
        return self._read_run(run, SequencesInfo, f"/batches/{step:d}/sequences", query=query)

    def rules(self) -> list[RuleInfo]:
        """Return the active rules: the built-in ones, as overridden by the service's rules file."""
        return self._decoded(self._http.request("GET", "/api/v1/rules"), list[RuleInfo])

    def compare(self, runs: Iterable[str], names: str | Iterable[str], steps: Steps = ALL_STEPS) -> RunComparison:
        """Return signals of several runs aligned by step."""
        from trmon_client.api.signals import compare_histories

        names = [names] if isinstance(names, str) else list(names)
        return compare_histories([self.signals(run, names, steps) for run in runs])

    def diff(self, runs: str | Iterable[str], *, by: Literal["step", "time"] = "step") -> ComparisonInfo:
        """Return where runs leave the first one, and how their verdicts, policies and configurations differ.

        Args: runs: two to eight; a single one is compared with the sound run whose configuration differs least.
        """
        runs = [runs] if isinstance(runs, str) else list(runs)
        body = self._http.request("GET", "/api/v1/compare", query={"runs": ",".join(runs), "by": by})
        return self._decoded(body, ComparisonInfo)

    def report(self, run: str) -> bytes:
        """Return a run as one self-contained HTML file: verdict, course, alerts, policies, notes; no configuration."""
        return self._request_run(run, "GET", "/report.html")

    def policy(self, run: str) -> PolicyInfo:
        """Return the policy that decides over a run's sequences now."""
        return self._read_run(run, PolicyInfo, "/policy")

    def what_if(
        self, run: str, policy: str | Mapping[str, Any], steps: Steps = ALL_STEPS, *, max_steps: int | None = None
    ) -> WhatIfInfo:
        """Return what another policy would have masked of a run's stored sequences.

        Args: policy: a preset's name, or a policy as JSON; max_steps: the newest so many, by default 1,000.
        """
        question = {"policy": policy, "from_step": steps[0], "to_step": steps[1], "max_steps": max_steps}
        return self._ask_run(run, WhatIfInfo, "/whatif", question, timeout_seconds=WHAT_IF_SECONDS)

    def notes(self, run: str) -> Iterator[NoteInfo]:
        """Yield the notes on a run and its steps, newest first."""
        return self._items(partial(self._request_run, run, "GET", "/notes"), NoteInfo, {})

    def add_note(self, run: str, text: str, *, step: int | None = None, author: str | None = None) -> NoteInfo:
        """Write a note on a run, or on one of its steps; it needs a token with the scope admin.

        Args: author: by default the token's name.
        """
        return self._ask_run(run, NoteInfo, "/notes", {"text": text, "step": step, "author": author})

    def delete_note(self, run: str, note_id: int) -> None:
        """Delete a note; it needs a token with the scope admin."""
        self._request_run(run, "DELETE", f"/notes/{note_id}")

    def delete(self, run: str) -> None:
        """Delete a run with all its data; it needs a token with the scope admin, and is in the audit log."""
        self._request_run(run, "DELETE")

    def _exact_series(self, run: str, query: dict[str, Any], steps: Steps) -> Iterator[SeriesAnswer]:
        """Yield consecutive parts with one batch a row; a part of too many rows is read again in smaller ones."""
        part = self._series(run, query | {"points": self.max_rows, "statistics": "last"}, steps)
        n_parts = 1 + sum(part.count) // (self.max_rows // 2)
        cuts = sorted({part.step[len(part.step) * i // n_parts] for i in range(1, n_parts)})
        if part.exact or cuts in ([], [steps[1]]):
            yield part
            return
        first = steps[0]
        for last in (*cuts, steps[1]):
            yield from self._exact_series(run, query, (first, last))
            first = last if last is None else last + 1

    def _series(self, run: str, query: Mapping[str, Any], steps: Steps) -> SeriesAnswer:
        from trmon_client.api.signals import SeriesAnswer

        return self._read_run(run, SeriesAnswer, "/signals", query={**query, "from": steps[0], "to": steps[1]})

    def _list(self, path: str, kind: type[T], query: Mapping[str, Any]) -> Iterator[T]:
        return self._items(partial(self._http.request, "GET", path), kind, query)

    def _items(self, request: Callable[..., bytes], kind: type[T], query: Mapping[str, Any]) -> Iterator[T]:
        page_kind: Any = ItemPage[kind]  # type: ignore[valid-type]
        after = None
        while True:
            body = request(query={**query, "limit": self.page_items, "after": after})
            page: ItemPage[T] = self._decoded(body, page_kind)
            yield from page.items
            after = page.next
            if after is None:
                return

    def _read_run(self, run: str, kind: type[T], what: str = "", *, query: Mapping[str, Any] | None = None) -> T:
        return self._decoded(self._request_run(run, "GET", what, query=query), kind)

    def _ask_run(self, run: str, kind: type[T], what: str, question: Mapping[str, Any], **options: Any) -> T:
        given = {name: value for name, value in question.items() if value is not None}
        return self._decoded(self._request_run(run, "POST", what, body=msgspec.json.encode(given), **options), kind)

    def _request_run(self, run: str, method: str, what: str = "", **options: Any) -> bytes:
        project, name = _split_name(run)
        try:
            return self._http.request(method, f"{RUNS}/{project}/{name}{what}", **options)
        except NotFoundError as error:
            is_open = "no run" in str(error) and "did you mean" not in str(error)
            known = [found.name for found in islice(self.runs(), MAX_KNOWN)] if is_open else []
            near = get_close_matches(run, known, n=2)
            advice = f"; did you mean {' or '.join(near)}?" if near else ""
            raise NotFoundError(f"{error}{advice}", status=error.status) from None

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return decode_answer(body, kind)
        except (msgspec.MsgspecError, ValueError) as error:
            raise IncompatibleService(
                f"{self.url} does not answer like a service of this client's version ({__version__}): {error}; "
                "give the URL of a trmon service, or update the older of the two"
            ) from error


def _split_name(run: str) -> tuple[str, str]:
    project, _, name = run.partition("/")
    # Anything else, such as "../tokens", would name another path of the service.
    if not (NAME.fullmatch(project) and NAME.fullmatch(name)):
        raise ValueError(f"run must be PROJECT/RUN, not {run!r:.130}")
    return project, name
